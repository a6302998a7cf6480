"""Messages published by a click on the map.

A hazard is published as an alert to all endpoints within a radius, at once; or as one more report, which counts like any other
in the detection of incidents. An all-clear goes to the receivers of the alert.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from milepost.dashboard.alerts import CLEARED
from milepost.dashboard.records import SAID
from milepost.eventlog.log import Entry
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import CROSS_HUB, EdgeRef, ForwardedMessage
from milepost.wire.json_form.codec import Decoder, Form, Whole, absent
from milepost.wire.records import to_record

ME: Final = EndpointId("dashboard")
VOICE: Final = "@dashboard"
"""The sender, in place of an edge's name."""
RADIUS_M_MAX: Final = 50_000.0
ASK_BYTES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to publish a hazard or an all-clear."""

    number: int
    """Identifies the request in its answer."""
    token: str
    kind: str
    place: Place
    radius_m: float | None
    """The radius of the alert's area; None: publish a report."""
    incident: str
    """The incident to clear; empty: raise a new one."""


def _ask(latitude: float, longitude: float, **others: Any) -> Ask:
    return Ask(place=Place(latitude, longitude), **others)


class AskForm(Form, frozen=True, kw_only=True, tag_field="type", tag="publish"):
    """The JSON form of a browser's request."""

    MODEL = _ask
    number: Whole
    token: str = ""
    kind: str
    latitude: float
    longitude: float
    radius_m: Annotated[float, msgspec.Meta(ge=1, le=RADIUS_M_MAX)] = absent(None)
    incident: str = ""


_ASKS: Final = Decoder("ask", AskForm, bytes_max=ASK_BYTES_MAX)


def ask_from_json(data: str | bytes) -> Ask:
    """Return the request of a browser; raise only `Malformed`."""
    ask: Ask = _ASKS.decode(data).value()
    return ask


class Publisher:
    """Builds messages with increasing numbers."""

    def __init__(self, kinds: Mapping[str, EventKind]) -> None:
        self._kinds = kinds
        self._last = 0

    def message(self, ask: Ask, now: Instant) -> Message:
        """Return the message for a request; raise `Malformed` for an unknown kind."""
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
            address=ToNotified((ask.incident,))
            if ask.incident
            else ToArea(Circle(ask.place, ask.radius_m), str(fields["incident"])),
            place=ask.place,
            valid_until=until,
            priority=kind.priority,
            reliable=True,
            fields=fields,
        )


def entries_of(message: Message, site: str) -> list[Entry]:
    """Return the records that deliver a message to the edges of a site, and to its pipelines."""
    record = to_record(ForwardedMessage(EdgeRef(site, VOICE), message.id, message, qos=1))
    return [Entry(CROSS_HUB, "", record), Entry(SAID, ME, record)]
