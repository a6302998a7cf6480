"""MQTT 5 as a carrier: `MqttSession` decides without I/O, `MqttCarrier` adds asyncio I/O."""
