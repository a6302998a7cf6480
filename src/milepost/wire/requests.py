"""The topics below `$milepost/`: a message published there is a request in JSON, answered on `$milepost/reply`.

A request is the JSON form of a value (`json_form`); members that the edge knows may be omitted: the type, which follows from the
topic, the sender, and, of reports and messages, the time and the id. A request in the name of another endpoint is refused.
"""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Final

import msgspec

from milepost.model.endpoints import EndpointId, SourceId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.reasons import Malformed, Reason, Refused, shown
from milepost.model.reports import Report
from milepost.model.subscriptions import SUBSCRIPTION_ID_MAX, Subscription, SubscriptionId
from milepost.wire.json_form import JSON_BYTES_MAX, MessageForm, ReportForm, SubscriptionForm
from milepost.wire.json_form.codec import Decoder, check_size, decode_any, encode_any, located
from milepost.wire.times import instant_to_text
from milepost.wire.user_properties import check_sender, without_system_topics

REQUEST_PREFIX: Final = "$milepost/"
REVOCATIONS_TOPIC: Final = REQUEST_PREFIX + "revocations"
"""Topic of the list of revoked signers, which an edge retains for its clients."""
REPLY_TOPIC: Final = REQUEST_PREFIX + "reply"


class RequestKind(Enum):
    """Kinds of requests; the value is the last level of the topic."""

    REPORT = "report"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    PUBLISH = "publish"


_KINDS_BY_TOPIC: Final = {REQUEST_PREFIX + kind.value: kind for kind in RequestKind}


def request_kind_at(topic: str) -> RequestKind:
    """Return the kind of request of a topic below `$milepost/`; raises `Malformed` if there is none."""
    if topic not in _KINDS_BY_TOPIC:
        near = get_close_matches(topic[:64], _KINDS_BY_TOPIC, 1)
        hint = f"did you mean {near[0]}?" if near else f"known request topics: {', '.join(_KINDS_BY_TOPIC)}"
        raise Malformed(Reason.TOPIC_RESERVED, f"there is no request topic {shown(topic)}; {hint}")
    return _KINDS_BY_TOPIC[topic]


Id = Annotated[int, msgspec.Meta(ge=1, le=SUBSCRIPTION_ID_MAX)]


class _SubscriptionRequest(SubscriptionForm, frozen=True, kw_only=True, tag="subscription"):
    """A subscription with an id, by which it can be removed."""

    id: Id


class _Unsubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Id


_REPORTS: Final = Decoder("report", ReportForm, bytes_max=JSON_BYTES_MAX)
_SUBSCRIPTIONS: Final = Decoder("subscription", _SubscriptionRequest, bytes_max=JSON_BYTES_MAX)
_UNSUBSCRIPTIONS: Final = Decoder("unsubscription", _Unsubscription, bytes_max=JSON_BYTES_MAX)
_MESSAGES: Final = Decoder("message", MessageForm, bytes_max=JSON_BYTES_MAX)


def report_from_json(payload: bytes, sender: EndpointId, now: Instant) -> Report:
    """Return the report on `$milepost/report`."""
    known = {"endpoint": sender, "seen_at": instant_to_text(now)}
    report: Report = _REPORTS.convert(_completed(payload, known)).value()
    _check_name("report.endpoint", report.endpoint, sender)
    return report


def subscription_from_json(payload: bytes, sender: EndpointId, now: Instant) -> Subscription:
    """Return the subscription on `$milepost/subscribe`, which must have an id. Its time window may be a phrase."""
    subscription: Subscription = _SUBSCRIPTIONS.convert(_completed(payload, {"owner": sender})).at(now).value()
    _check_name("subscription.owner", subscription.owner, sender)
    return replace(subscription, query=without_system_topics(subscription.query))


def unsubscription_from_json(payload: bytes) -> SubscriptionId:
    """Return the id of the subscription that `$milepost/unsubscribe` removes."""
    return SubscriptionId(_UNSUBSCRIPTIONS.decode(payload).id)


def message_from_json(payload: bytes, sender: EndpointId, now: Instant, number: MessageId) -> Message:
    """Return the message on `$milepost/publish`; `now` and `number` are the defaults of its instant and id."""
    known = {"source": sender, "seen_at": instant_to_text(now), "id": str(number)}
    message: Message = _MESSAGES.convert(_completed(payload, known)).value()
    _check_name("message.source", message.source, sender)
    return message


def reply_to_json(about: RequestKind, number: int | None = None, refused: Refused | None = None) -> bytes:
    """Return the answer on `$milepost/reply`: the kind of request, the id and the outcome."""
    found: dict[str, object] = {"about": about.value}
    if number is not None:
        found["id"] = str(number) if about is RequestKind.PUBLISH else number  # ids of messages may need 64 bits
    found["ok"] = refused is None
    if refused is not None:
        found["refused"] = {
            "number": refused.reason.value,
            "name": refused.reason.name,
            "detail": refused.detail.encode(errors="replace").decode(),
            "advice": refused.reason.advice,
        }
    return encode_any(found)


def _completed(payload: bytes, known: Mapping[str, str]) -> object:
    """Return the members of a request with the defaults in *known*; a value that is not an object is returned unchanged."""
    check_size(payload, JSON_BYTES_MAX)
    value = decode_any(payload)
    return {**known, **value} if isinstance(value, dict) else value


def _check_name(where: str, name: SourceId, sender: EndpointId) -> None:
    try:
        check_sender(name, sender)
    except Malformed as fault:
        raise located(fault, where) from None
