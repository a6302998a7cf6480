"""Parcels and deliveries as tests need them: most of a message does not matter most of the time."""

from door_in_memory import START
from milepost.edge.parcels import Delivery, Parcel
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.priorities import Priority

SENDER = EndpointId("sender")


def at(seconds: float) -> Instant:
    return Instant(START + int(seconds * SECOND_NS))


def parcel(
    body: bytes = b"x",
    topic: str = "t",
    *,
    qos: int = 1,
    priority: Priority = Priority.CONVENIENCE,
    seen_s: float = 0,
    valid_s: float | None = None,
    is_retained: bool = False,
) -> Parcel:
    return Parcel(
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
    return Delivery(parcel(body, topic, qos=qos, priority=priority, seen_s=seen_s, valid_s=valid_s), qos)
