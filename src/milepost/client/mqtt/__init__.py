"""MQTT 5 as a carrier: `Session` decides without I/O, `MqttCarrier` is its thin skin of asyncio."""
