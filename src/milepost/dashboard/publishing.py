"""Publishing: what somebody wants to tell by a click on the map, as the message that says so.

A hazard is told in one of two ways: as an alert to everybody within some metres, at once; or as one more report, which counts
as any other does when incidents are found. An all-clear goes to whom the alert went.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from milepost.backbone.log import Entry
from milepost.dashboard.alerts import CLEARED
from milepost.dashboard.reading import SAID
from milepost.model.addresses import ToArea, ToTold
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import CROSS_HUB, EdgeRef, Said
from milepost.wire.json_form import reading
from milepost.wire.json_form.reading import Members
from milepost.wire.records import to_record

ME: Final = EndpointId("dashboard")
VOICE: Final = "@dashboard"
"""In place of an edge's name."""
RADIUS_M_MAX: Final = 50_000.0
ASK_BYTES_MAX: Final = 4_096
_ASK: Final = ("type", "number", "token", "kind", "latitude", "longitude", "radius_m", "incident")


@dataclass(frozen=True, slots=True)
class Ask:
    """What somebody wants to tell."""

    number: int
    """By which the answer is known."""
    token: str
    kind: str
    place: Place
    radius_m: float | None
    """To whom; nothing: it is a report."""
    incident: str
    """What is over; empty: it begins."""


def ask_from_json(data: str | bytes) -> Ask:
    """What a browser asks for; raises nothing but `Malformed`."""
    if len(data) > ASK_BYTES_MAX:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{len(data)} bytes, {ASK_BYTES_MAX} are allowed")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault}") from None
    members = Members(value, "ask", _ASK, kind="publish")
    radius_m = members.maybe("radius_m", reading.number, None)
    if radius_m is not None and not 1 <= radius_m <= RADIUS_M_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"radius_m is {radius_m}, not in 1..{RADIUS_M_MAX:g}")
    return Ask(
        members.need("number", reading.integer),
        members.maybe("token", reading.text, ""),
        members.need("kind", reading.text),
        Place(members.need("latitude", reading.number), members.need("longitude", reading.number)),
        radius_m,
        members.maybe("incident", reading.text, ""),
    )


class Publisher:
    """Makes messages, each under a number above all before."""

    def __init__(self, kinds: Mapping[str, EventKind]) -> None:
        self._kinds = kinds
        self._last = 0

    def message(self, ask: Ask, now: Instant) -> Message:
        """The message that says it; raises `Malformed` for a kind that is not known."""
        kind = self._kinds.get(ask.kind)
        if kind is None:
            raise Malformed(Reason.FIELD_RANGE, f"there is no kind {ask.kind[:40]!r}")
        number = self._last = max(self._last + 1, now)
        until = Instant(now + kind.valid_ns)
        if ask.radius_m is None:
            return Message(MessageId(number), ME, kind.topic, now, place=ask.place, valid_until=until, priority=kind.priority)
        fields = {
            "incident": ask.incident or f"{VOICE}-{number}",
            "kind": kind.name,
            "phase": CLEARED if ask.incident else "raised",
            "radius_m": ask.radius_m,
        }
        return Message(
            MessageId(number),
            ME,
            kind.alert or f"Alert/{kind.name}",
            now,
            address=ToTold((ask.incident,)) if ask.incident else ToArea(Circle(ask.place, ask.radius_m), str(fields["incident"])),
            place=ask.place,
            valid_until=until,
            priority=kind.priority,
            reliable=True,
            fields=fields,
        )


def entries_of(message: Message, site: str) -> list[Entry]:
    """The records that bring a message to the edges of a site, and to its pipelines."""
    record = to_record(Said(EdgeRef(site, VOICE), message.id, message, qos=1))
    return [Entry(CROSS_HUB, "", record), Entry(SAID, ME, record)]
