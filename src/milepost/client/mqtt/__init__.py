"""MQTT 5 as a transport: `MqttSession` decides without I/O, `MqttTransport` adds asyncio I/O."""
