"""The JSON form of the values that datagrams carry; `schema/milepost.schema.json` describes it.

Invariants:
- a text is an object with a version (`v`) and a `type`; members with their default value are absent, and null has no meaning;
- integers that may need 64 bits are texts of digits, instants are ISO 8601 texts exact to the nanosecond, bytes are base64;
- decoding is strict: unknown and missing members and other types are refused, with the path to the member.
"""

from pathlib import Path
from typing import Final, TypeAlias

from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reports import Report
from milepost.model.sessions import Datagram
from milepost.model.subscriptions import Notice, Subscription
from milepost.wire.json_form.codec import Codec
from milepost.wire.json_form.forms import FORMS, SubscribeForm, SubscriptionForm

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
