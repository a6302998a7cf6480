"""Parcels and deliveries as tests need them: most of a message does not matter most of the time."""

from edge_in_memory import START
from milepost.broker.publication import Delivery, Publication
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.priorities import Priority

SENDER = EndpointId("sender")


def at(seconds: float) -> Instant:
    return Instant(START + int(seconds * SECOND_NS))


def publication(
    body: bytes = b"x",
    topic: str = "t",
    *,
    qos: int = 1,
    priority: Priority = Priority.CONVENIENCE,
    seen_s: float = 0,
    valid_s: float | None = None,
    is_retained: bool = False,
) -> Publication:
    return Publication(
        topic,
        body,
        at(seen_s),
        source=SENDER,
        origin=99,
        qos=qos,
        priority=priority,
        valid_until=FOREVER if valid_s is None else at(valid_s),
        is_retained=is_retained,
    )


def delivery(
    body: bytes = b"x",
    topic: str = "t",
    *,
    qos: int = 1,
    priority: Priority = Priority.CONVENIENCE,
    seen_s: float = 0,
    valid_s: float | None = None,
) -> Delivery:
    return Delivery(publication(body, topic, qos=qos, priority=priority, seen_s=seen_s, valid_s=valid_s), qos)
