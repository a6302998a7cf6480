"""Connections that are closed at the end of a test, and the types of the fixtures."""

from collections.abc import Callable
from typing import Protocol, TypedDict, Unpack

from live.mqtt.brokers import Broker
from live.mqtt.certificates import Certificates
from live.mqtt.packets import V5, ConnectOptions
from live.mqtt.raw_client import RawClient


class SetupOptions(TypedDict, total=False):
    """The fields of `Setup` that a test may set."""

    durability: str
    users: dict[str, str] | None
    is_anonymous: bool
    certificates: Certificates | None
    more: str


class MakeBroker(Protocol):
    """The `make_broker` fixture."""

    def __call__(self, **options: Unpack[SetupOptions]) -> Broker: ...


class Connections:
    """Opens connections to a broker and closes them when the test is over."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.opened: list[RawClient] = []

    def dial(self, level: int = V5) -> RawClient:
        """Open a connection on which nothing is sent."""
        self.opened.append(RawClient(self.broker.tcp, level=level))
        return self.opened[-1]

    def join(self, suffix: str = "", level: int = V5, **options: Unpack[ConnectOptions]) -> RawClient:
        """Open a connection with a session; *suffix* is the end of its client identifier, empty: the broker assigns one."""
        opened = self.dial(level)
        opened.join(self.client_id(suffix) if suffix else "", **options)
        return opened

    def client_id(self, suffix: str) -> str:
        return f"{self.name}{suffix}"

    def close(self) -> None:
        for one in self.opened:
            one.close()


ConnectTo = Callable[[Broker], Connections]
"""The `connect_to` fixture."""
