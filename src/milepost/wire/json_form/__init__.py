"""The JSON form of the values that datagrams carry; `schema/milepost.schema.json` describes it.

Rules of this room:
- every value is an object whose `type` says what it is; what has its default value is absent; null is nothing's value;
- integers that may need 64 bits are texts of digits, instants are ISO 8601 texts exact to the nanosecond, bytes are base64;
- nothing is repaired: an unknown member is refused by name, with the nearest known one, a missing one and a wrong type likewise.
"""

from pathlib import Path
from typing import Final, TypeAlias

import orjson

from milepost.model.messages import Message
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.sessions import Datagram, Refusal
from milepost.model.subscriptions import Notice, Subscription
from milepost.wire.json_form import messages, sessions, subscriptions
from milepost.wire.json_form.reading import JsonObject, Reader, kind_of

JSON_BYTES_MAX: Final = 4_000_000
"""The most a value may take in JSON: room for the largest body in base64."""

SCHEMA_PATH: Final = Path(__file__).parent.parent / "schema" / "milepost.schema.json"

Value: TypeAlias = Message | Report | Subscription | Notice | Datagram
"""All that has a JSON form."""


def to_json(value: Value) -> bytes:
    """The JSON text of any value; its `type` says which."""
    match value:
        case Message():
            return _dumped(messages.write_message(value))
        case Report():
            return _dumped(sessions.write_report(value))
        case Subscription():
            return _dumped(subscriptions.write_subscription(value))
        case Notice():
            return _dumped(subscriptions.write_notice(value))
        case _:
            return _dumped(sessions.write_datagram(value))


def from_json(data: bytes) -> Value:
    """The value that a JSON text describes; raises nothing but `Malformed`."""
    value = _loaded(data)
    kind = kind_of(value, "value", _READERS)
    return _READERS[kind](value, kind)


def message_to_json(message: Message) -> bytes:
    """The JSON text of a message."""
    return to_json(message)


def message_from_json(data: bytes) -> Message:
    """The message that a JSON text describes."""
    return messages.read_message(_loaded(data), "message")


def report_to_json(report: Report) -> bytes:
    """The JSON text of a report."""
    return to_json(report)


def report_from_json(data: bytes) -> Report:
    """The report that a JSON text describes."""
    return sessions.read_report(_loaded(data), "report")


def subscription_to_json(subscription: Subscription) -> bytes:
    """The JSON text of a subscription."""
    return to_json(subscription)


def subscription_from_json(data: bytes) -> Subscription:
    """The subscription that a JSON text describes."""
    return subscriptions.read_subscription(_loaded(data), "subscription")


def notice_to_json(notice: Notice) -> bytes:
    """The JSON text of a notice."""
    return to_json(notice)


def notice_from_json(data: bytes) -> Notice:
    """The notice that a JSON text describes."""
    return subscriptions.read_notice(_loaded(data), "notice")


def refusal_to_json(refusal: Refusal) -> bytes:
    """The JSON text of a refusal."""
    return to_json(refusal)


def refusal_from_json(data: bytes) -> Refusal:
    """The refusal that a JSON text describes."""
    return sessions.read_refusal(_loaded(data), "refusal")


_READERS: Final[dict[str, Reader[Value]]] = {
    "message": messages.read_message,
    "report": sessions.read_report,
    "subscription": subscriptions.read_subscription,
    "notice": subscriptions.read_notice,
    **sessions.READERS,
}


def _dumped(value: JsonObject) -> bytes:
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"JSON cannot hold it: {fault}") from None
    _check_size(len(data))
    return data


def _loaded(data: bytes) -> object:
    _check_size(len(data))
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault.msg} at {fault.pos}", at=fault.pos) from None


def _check_size(size: int) -> None:
    if size > JSON_BYTES_MAX:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{size} bytes of JSON, {JSON_BYTES_MAX} are allowed")
