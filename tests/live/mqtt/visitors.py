"""What tests get from the fixtures: connections that are closed for them, and brokers of their own."""

from collections.abc import Callable
from typing import Protocol, TypedDict, Unpack

from live.mqtt.brokers import Broker
from live.mqtt.certificates import Certificates
from live.mqtt.packets import V5, ConnectOptions
from live.mqtt.raw import Raw


class SetupOptions(TypedDict, total=False):
    """The fields of `Setup` that a test may choose."""

    durability: str
    users: dict[str, str] | None
    certificates: Certificates | None
    more: str


class MakeBroker(Protocol):
    """The `make_broker` fixture."""

    def __call__(self, **options: Unpack[SetupOptions]) -> Broker: ...


class Visitors:
    """Opens connections to a broker and closes them when the test is over."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.opened: list[Raw] = []

    def dial(self, level: int = V5) -> Raw:
        """A connection on which nothing was sent."""
        self.opened.append(Raw(self.broker.tcp, level=level))
        return self.opened[-1]

    def join(self, who: str = "", level: int = V5, **options: Unpack[ConnectOptions]) -> Raw:
        """A connection with a session; `who` becomes part of a client identifier of this test, empty lets the broker choose."""
        opened = self.dial(level)
        opened.join(self.client_id(who) if who else "", **options)
        return opened

    def client_id(self, who: str) -> str:
        return f"{self.name}{who}"

    def close(self) -> None:
        for one in self.opened:
            one.close()


Visit = Callable[[Broker], Visitors]
"""The `visit` fixture."""
