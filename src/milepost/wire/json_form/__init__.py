"""The JSON form of the values that datagrams carry; `schema/milepost.schema.json` describes it.

Rules of this room:
- every value is an object whose `type` says what it is; what has its default value is absent; null is nothing's value;
- integers that may need 64 bits are texts of digits, instants are ISO 8601 texts exact to the nanosecond, bytes are base64;
- nothing is repaired: an unknown member is refused by name, with the nearest known one, a missing one and a wrong type likewise.
"""

from pathlib import Path
from typing import Final, TypeAlias

import orjson

from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.sessions import Datagram
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


def from_json(data: bytes, *, now: Instant | None = None) -> Value:
    """The value that a JSON text describes; raises nothing but `Malformed`.

    With `now`, a subscription's frame may also be a phrase such as "last 10 minutes" (see `wire.times`).
    """
    value = _loaded(data)
    kind = kind_of(value, "value", _READERS)
    if now is not None and isinstance(value, dict):
        holder = value.get("subscription") if kind == "subscribe" else value
        subscriptions.spell_out_frame(holder, now)
    return _READERS[kind](value, kind)


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
