"""The MQTT listener: MQTT packets to broker calls, and broker actions to MQTT packets."""
