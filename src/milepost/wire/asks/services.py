"""The topics below `$milepost/`: what is published there is a request in JSON, answered on `$milepost/reply`.

A request is the JSON form of a value (`json_form`), less what goes without saying: its type, which the topic says; who sends it;
and, of reports and messages, when and under which number. In the name of somebody else nothing is taken.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final

import orjson

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.reasons import Malformed, Reason, Refused, shown
from milepost.model.reports import Report
from milepost.model.subscriptions import SUBSCRIPTION_ID_MAX, Subscription, SubscriptionId
from milepost.wire.asks.messages import check_sender
from milepost.wire.asks.subscriptions import without_system_topics
from milepost.wire.json_form import JSON_BYTES_MAX
from milepost.wire.json_form.messages import read_message
from milepost.wire.json_form.reading import JsonObject, Members, integer, wrong_type
from milepost.wire.json_form.sessions import read_report
from milepost.wire.json_form.subscriptions import SUBSCRIPTION_MEMBERS, read_subscription, spell_out_frame
from milepost.wire.times import instant_to_text

SERVICE_PREFIX: Final = "$milepost/"
REPLY_TOPIC: Final = SERVICE_PREFIX + "reply"


class Service(Enum):
    """What can be asked for; the value is the last level of its topic."""

    REPORT = "report"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    PUBLISH = "publish"


_SERVICES: Final = {SERVICE_PREFIX + service.value: service for service in Service}


def service_at(topic: str) -> Service:
    """The service behind a topic below `$milepost/`."""
    if topic not in _SERVICES:
        near = get_close_matches(topic[:64], _SERVICES, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_SERVICES)}"
        raise Malformed(Reason.TOPIC_RESERVED, f"there is no service at {shown(topic)}; {hint}")
    return _SERVICES[topic]


def report_from_json(payload: bytes, sender: EndpointId, now: Instant) -> Report:
    """The report on `$milepost/report`."""
    value = _request(payload, "report", {"endpoint": sender, "seen_at": instant_to_text(now)})
    report = read_report(value, "report")
    _check_name("report.endpoint", report.endpoint, sender)
    return report


def subscription_from_json(payload: bytes, sender: EndpointId, now: Instant) -> Subscription:
    """The subscription on `$milepost/subscribe`; its id is what it is ended by. The frame may be a phrase."""
    value = _request(payload, "subscription", {"owner": sender})
    spell_out_frame(value, now)
    Members(value, "subscription", SUBSCRIPTION_MEMBERS).need("id", _read_id)
    asked = read_subscription(value, "subscription")
    _check_name("subscription.owner", asked.owner, sender)
    query = without_system_topics(asked.query)
    return Subscription(asked.owner, query, asked.area, asked.frame, asked.id, asked.qos, asked.share)


def unsubscription_from_json(payload: bytes) -> SubscriptionId:
    """Which subscription `$milepost/unsubscribe` ends."""
    return Members(_loaded(payload), "unsubscription", ("id",)).need("id", _read_id)


def message_from_json(payload: bytes, sender: EndpointId, now: Instant, number: MessageId) -> Message:
    """The whole message on `$milepost/publish`; `now` and `number` stand in where it has no instant and no id."""
    value = _request(payload, "message", {"source": sender, "seen_at": instant_to_text(now), "id": str(number)})
    message = read_message(value, "message")
    _check_name("message.source", message.source, sender)
    return message


def reply_json(about: Service, number: int | None = None, refused: Refused | None = None) -> bytes:
    """The answer on `$milepost/reply`: what it is about and how it went."""
    found: JsonObject = {"about": about.value}
    if number is not None:
        found["id"] = str(number) if about is Service.PUBLISH else number  # ids of messages may need 64 bits
    found["ok"] = refused is None
    if refused is not None:
        found["refused"] = {
            "number": refused.reason.value,
            "name": refused.reason.name,
            "detail": refused.detail.encode(errors="replace").decode(),
            "advice": refused.reason.advice,
        }
    return orjson.dumps(found)


def _request(payload: bytes, kind: str, unsaid: Mapping[str, str]) -> JsonObject:
    """The object of a request, with what goes without saying filled in."""
    value = _loaded(payload)
    if not isinstance(value, dict):
        raise wrong_type(value, kind, "an object")
    return {"type": kind, **unsaid, **value}


def _loaded(payload: bytes) -> object:
    if len(payload) > JSON_BYTES_MAX:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{len(payload)} bytes of JSON, {JSON_BYTES_MAX} are allowed")
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault.msg} at {fault.pos}", at=fault.pos) from None


def _check_name(where: str, name: EndpointId, sender: EndpointId) -> None:
    try:
        check_sender(name, sender)
    except Malformed as fault:
        raise Malformed(fault.reason, f"{where}: {fault.detail}") from None


def _read_id(value: object, where: str) -> SubscriptionId:
    number = integer(value, where)
    if not 1 <= number <= SUBSCRIPTION_ID_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"{where} is {number}, not in 1..{SUBSCRIPTION_ID_MAX}")
    return SubscriptionId(number)
