"""Messages published by a click on the map.

A hazard is published as an alert to all endpoints within a radius, at once; or as one more report, which counts like any other
in the detection of incidents. An all-clear goes to the receivers of the alert.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from milepost.dashboard.alerts import CLEARED
from milepost.dashboard.records import MESSAGES
from milepost.eventlog.log import Entry
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import service_source
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, service_sender
from milepost.wire.json_form.codec import Decoder, Form, Whole, absent
from milepost.wire.records import to_record

SOURCE: Final = service_source("dashboard")
SENDER: Final = service_sender("dashboard")
"""The sender, in place of an edge's name."""
RADIUS_M_MAX: Final = 50_000.0
PUBLISH_REQUEST_BYTES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class PublishRequest:
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


def _publish_request(latitude: float, longitude: float, **others: Any) -> PublishRequest:
    return PublishRequest(place=Place(latitude, longitude), **others)


class PublishRequestForm(Form, frozen=True, kw_only=True, tag_field="type", tag="publish"):
    """The JSON form of a browser's request."""

    MODEL = _publish_request
    number: Whole
    token: str = ""
    kind: str
    latitude: float
    longitude: float
    radius_m: Annotated[float, msgspec.Meta(ge=1, le=RADIUS_M_MAX)] = absent(None)
    incident: str = ""


_REQUESTS: Final = Decoder("request", PublishRequestForm, bytes_max=PUBLISH_REQUEST_BYTES_MAX)


def publish_request_from_json(data: str | bytes) -> PublishRequest:
    """Return the request of a browser; raise only `Malformed`."""
    request: PublishRequest = _REQUESTS.decode(data).value()
    return request


class Publisher:
    """Builds messages with increasing numbers."""

    def __init__(self, kinds: Mapping[str, EventKind]) -> None:
        self._kinds = kinds
        self._last = 0

    def message(self, request: PublishRequest, now: Instant) -> Message:
        """Return the message for a request; raise `Malformed` for an unknown kind."""
        kind = self._kinds.get(request.kind)
        if kind is None:
            raise Malformed(Reason.FIELD_RANGE, f"unknown kind {request.kind[:40]!r}; known: {', '.join(self._kinds)}")
        number = self._last = max(self._last + 1, now)
        until = Instant(now + kind.valid_ns)
        if request.radius_m is None:
            return Message(
                MessageId(number), SOURCE, kind.topic, now, place=request.place, valid_until=until, priority=kind.priority
            )
        fields = {
            "incident": request.incident or f"{SENDER}-{number}",
            "kind": kind.name,
            "phase": CLEARED if request.incident else "raised",
            "radius_m": request.radius_m,
        }
        return Message(
            MessageId(number),
            SOURCE,
            kind.alert or f"Alert/{kind.name}",
            now,
            address=ToNotified((request.incident,))
            if request.incident
            else ToArea(Circle(request.place, request.radius_m), str(fields["incident"])),
            place=request.place,
            valid_until=until,
            priority=kind.priority,
            reliable=True,
            fields=fields,
        )


def entries_of(message: Message, site: str) -> list[Entry]:
    """Return the records that deliver a message to the edges of a site, and to its pipelines."""
    record = to_record(ForwardedMessage(EdgeRef(site, SENDER), message.id, message, qos=1))
    return [Entry(CROSS_HUB, "", record), Entry(MESSAGES, SOURCE, record)]
