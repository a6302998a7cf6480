"""Fixtures of the attack tests: real edges, and clients that misuse them; each attack has an edge of its own."""

from live.federation.conftest import own_deployment
from live.mqtt.conftest import connect_to, make_broker, name, open_files

__all__ = ["connect_to", "make_broker", "name", "open_files", "own_deployment"]
