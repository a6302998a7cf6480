"""What handlers have set aside: shown, and taken up again."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from milepost.backbone.log import Entry, Log
from milepost.handlers.names import PARKED, parked_topic
from milepost.handlers.notes import Parked, parked_from_bytes, request_again, request_from
from milepost.handlers.tables import read_table, write
from milepost.model.messages import Message
from milepost.model.sites import publish_to


class Aside(NamedTuple):
    """A request that a handler has set aside."""

    handler: str
    key: str
    parked: Parked
    message: Message

    @property
    def id(self) -> str:
        """By which people name it."""
        return f"{self.handler}:{self.key}"


def all_parked(log: Log) -> Iterator[Aside]:
    """What all handlers of a site have set aside, the oldest of each first."""
    for topic in log.topics():
        if topic.startswith(PARKED):
            for key, value in read_table(log, topic).items():
                with suppress(ValueError):  # not written by a handler
                    parked = parked_from_bytes(value)
                    yield Aside(topic.removeprefix(PARKED), key, parked, request_from(parked.said).said.message)


def take_up(log: Log, aside: Aside) -> None:
    """Give a request to its handler once more, behind all that waits; comes back when that is safe."""
    again = Entry(publish_to(aside.handler), aside.message.source, request_again(aside.parked))
    write(log, [again])
    write(log, [Entry(parked_topic(aside.handler), aside.key, None)])
