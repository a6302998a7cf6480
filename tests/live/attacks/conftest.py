"""The fixtures of the MQTT tests: each attack has an edge of its own."""

from live.mqtt.conftest import connect_to, make_broker, name, open_files

__all__ = ["connect_to", "make_broker", "name", "open_files"]
