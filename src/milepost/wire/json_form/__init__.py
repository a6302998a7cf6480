"""The JSON form of the values that datagrams carry; `schema/milepost.schema.json` describes it.

Invariants:
- a text is an object with a version (`v`) and a `type`; members with their default value are absent, and null has no meaning;
- integers that may need 64 bits are texts of digits, instants are ISO 8601 texts exact to the nanosecond, bytes are base64;
- decoding is strict: unknown and missing members and other types are refused, with the path to the member.
"""

from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.messages import NO_FIELDS, Message
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Notify,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
)
from milepost.model.subscriptions import Notice, Subscription
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.wire.json_form.codec import Codec, Form, Standalone, Whole, absent
from milepost.wire.json_form.field_codecs import (
    Base64,
    CauseName,
    Digits,
    Fields,
    GeoArea,
    GeoAreaOrAround,
    IsoInstant,
    PriorityName,
    QueryText,
    SessionTokenText,
    Tags,
)
from milepost.wire.times import time_window_from_text


class PlaceForm(Form, frozen=True):
    """A place, with its coordinates by name."""

    MODEL = Place
    latitude: float
    longitude: float


class WindowForm(Form, frozen=True):
    """A time window; an open end is absent."""

    MODEL = TimeWindow
    start: IsoInstant = absent(BEGINNING)
    end: IsoInstant = absent(FOREVER)


# The member `to` distinguishes the addresses.


class ToContentForm(Form, frozen=True, tag_field="to", tag="content"):
    """Address of the endpoints with a matching subscription."""

    MODEL = ToContent
    within: GeoArea = absent(None)


class ToEndpointForm(Form, frozen=True, tag_field="to", tag="endpoint"):
    """Address of one endpoint."""

    MODEL = ToEndpoint
    endpoint: str


class ToAreaForm(Form, frozen=True, tag_field="to", tag="area"):
    """Address of all endpoints in an area."""

    MODEL = ToArea
    area: GeoArea
    incident: str = ""


class ToNotifiedForm(Form, frozen=True, tag_field="to", tag="notified"):
    """Address of all endpoints that were notified of these incidents."""

    MODEL = ToNotified
    incidents: tuple[str, ...]


class ToEveryoneForm(Form, frozen=True, tag_field="to", tag="everyone"):
    """Address of all endpoints."""

    MODEL = ToEveryone


AddressForm = ToContentForm | ToEndpointForm | ToAreaForm | ToNotifiedForm | ToEveryoneForm


class MessageForm(Standalone, frozen=True, tag="message"):
    """A message."""

    MODEL = Message
    id: Digits
    source: str
    topic: str
    seen_at: IsoInstant
    tags: Tags = absent(frozenset())
    address: AddressForm = absent(ToContent())
    place: PlaceForm = absent(None)
    valid_until: IsoInstant = absent(FOREVER)
    priority: PriorityName = absent(Priority.CONVENIENCE)
    reliable: bool = False
    fields: Fields = absent(NO_FIELDS)
    body: Base64 = absent(b"")
    signature: Base64 = absent(b"")
    certificate: Base64 = absent(b"")


class ReportForm(Standalone, frozen=True, tag="report"):
    """A position report; an unknown heading or speed is absent."""

    MODEL = Report
    endpoint: str
    place: PlaceForm
    seen_at: IsoInstant
    heading_deg: float = absent(None)
    speed_mps: float = absent(None)


class SubscriptionForm(Standalone, frozen=True, tag="subscription"):
    """A subscription. Its time window may be a phrase if the reader passes the current time."""

    MODEL = Subscription
    owner: str
    query: QueryText
    area: GeoAreaOrAround = absent(None)
    time_window: WindowForm | str = absent(ALWAYS)
    id: Whole = 0
    qos: Whole = 1
    share: str = absent(None)

    def value(self) -> Any:
        """Return the subscription."""
        if isinstance(self.time_window, str):
            raise Malformed(Reason.TIME_UNREADABLE, "the time window is a phrase, and the reader was not given the time")
        return super().value()

    def at(self, now: Instant) -> "SubscriptionForm":
        """Return the form with a phrase resolved to a time window."""
        if not isinstance(self.time_window, str):
            return self
        return msgspec.structs.replace(self, time_window=_window(time_window_from_text(self.time_window, now)))


def _window(window: TimeWindow) -> WindowForm:
    start: Any = window.start
    end: Any = window.end
    return WindowForm(start=start, end=end)


class NoticeForm(Standalone, frozen=True, tag="notice"):
    """Metadata of a match."""

    MODEL = Notice
    subscription: Whole
    message: Digits
    source: str
    topic: str
    seen_at: IsoInstant
    tags: Tags = absent(frozenset())
    place: PlaceForm = absent(None)
    summary: Base64 = absent(b"")


class MessageNameForm(Form, frozen=True, tag_field="type", tag="message_name"):
    """The name of a message."""

    MODEL = MessageName
    source: str
    id: Digits


class SubscriptionNameForm(Form, frozen=True, tag_field="type", tag="subscription_name"):
    """The name of a subscription."""

    MODEL = SubscriptionName
    owner: str
    id: Whole


NameForm = MessageNameForm | SubscriptionNameForm


class CellsForm(Form, frozen=True):
    """Multicast groups of area messages."""

    MODEL = MulticastGrid
    group: str
    groups: Whole
    port: Whole
    side_deg: float


# Contents of datagrams.


class InitForm(Standalone, frozen=True, tag="init"):
    """Request for a session."""

    MODEL = Init
    report: ReportForm
    former: SessionTokenText = absent(None)
    joins_multicast: bool = False


class AcknowledgeForm(Standalone, frozen=True, tag="acknowledge"):
    """Confirmation of a session."""

    MODEL = AcknowledgeDatagram
    session: SessionTokenText
    reporting_interval_ns: Whole
    edge: str
    is_resumed: bool = msgspec.field(name="resumed", default=False)
    reset: Base64 = absent(b"")
    keys_ns: Whole = absent(None)
    cells: CellsForm = absent(None)


class ReportSentForm(Standalone, frozen=True, tag="report_sent"):
    """A report within a session."""

    MODEL = ReportSent
    session: SessionTokenText
    report: ReportForm


class HeartbeatForm(Standalone, frozen=True, tag="heartbeat"):
    """Keepalive of the edge."""

    MODEL = Heartbeat
    session: SessionTokenText


class CloseForm(Standalone, frozen=True, tag="close"):
    """End of a session."""

    MODEL = Close
    session: SessionTokenText
    cause: CauseName


class RefusalForm(Standalone, frozen=True, kw_only=True, tag="refusal"):
    """A refusal."""

    MODEL = Refusal
    session: SessionTokenText = absent(None)
    reason: Whole
    name: str
    detail: str = ""
    about: NameForm = absent(None)


class PublishForm(Standalone, frozen=True, kw_only=True, tag="publish"):
    """A message; outbound with the subscriptions that it matched."""

    MODEL = PublishDatagram
    session: SessionTokenText = absent(None)
    message: MessageForm
    matches: tuple[Whole, ...] = ()


class SubscribeForm(Standalone, frozen=True, kw_only=True, tag="subscribe"):
    """Request for a subscription."""

    MODEL = SubscribeDatagram
    session: SessionTokenText = absent(None)
    subscription: SubscriptionForm

    def at(self, now: Instant) -> "SubscribeForm":
        """Return the form with a phrase resolved to a time window."""
        return msgspec.structs.replace(self, subscription=self.subscription.at(now))


class UnsubscribeForm(Standalone, frozen=True, kw_only=True, tag="unsubscribe"):
    """Request to remove a subscription."""

    MODEL = UnsubscribeDatagram
    session: SessionTokenText = absent(None)
    subscription: SubscriptionNameForm


class NotifyForm(Standalone, frozen=True, kw_only=True, tag="notify"):
    """Notice of a match."""

    MODEL = Notify
    session: SessionTokenText = absent(None)
    notice: NoticeForm


class ReceivedForm(Standalone, frozen=True, kw_only=True, tag="received"):
    """Acknowledgement of a message or a subscription."""

    MODEL = ReceivedDatagram
    session: SessionTokenText = absent(None)
    name: NameForm


DATAGRAM_FORMS = (
    InitForm, AcknowledgeForm, ReportSentForm, HeartbeatForm, CloseForm, RefusalForm,
    PublishForm, SubscribeForm, UnsubscribeForm, NotifyForm, ReceivedForm,
)  # fmt: skip
FORMS = (MessageForm, ReportForm, SubscriptionForm, NoticeForm, *DATAGRAM_FORMS)


JSON_BYTES_MAX: Final = 4_000_000
"""Maximum bytes of a value in JSON: room for the largest body in base64."""

SCHEMA_PATH: Final = Path(__file__).parent.parent / "schema" / "milepost.schema.json"

Value: TypeAlias = Message | Report | Subscription | Notice | Datagram
"""All values that have a JSON form."""

_CODEC: Final[Codec[Value]] = Codec("value", *FORMS, bytes_max=JSON_BYTES_MAX)


def to_json(value: Value) -> bytes:
    """Return the JSON text of a value, identified by its `type`."""
    return _CODEC.encode(value)


def from_json(data: bytes, *, now: Instant | None = None) -> Value:
    """Return the value of a JSON text; raises only `Malformed`.

    With `now`, a subscription's time window may also be a phrase such as "last 10 minutes" (see `wire.times`).
    """
    form = _CODEC.forms.decode(data)
    if now is not None and isinstance(form, SubscriptionForm | SubscribeForm):
        form = form.at(now)
    value: Value = form.value()
    return value
