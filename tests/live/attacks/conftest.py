"""Fixtures of the attack tests: real edges, and clients that misuse them."""

from live.mqtt.conftest import make_broker, open_files

__all__ = ["make_broker", "open_files"]
