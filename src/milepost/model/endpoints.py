"""Endpoints: senders and receivers. This module has only their names; sessions and `trust` establish their identity."""

from typing import Final, NewType

from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import maybe_bad_character

EndpointId = NewType("EndpointId", str)

ENDPOINT_ID_BYTES_MAX: Final = 128


def endpoint_id(text: str) -> EndpointId:
    """Return *text* as an endpoint's name: 1 to 128 bytes of UTF-8 without control characters."""
    if not isinstance(text, str) or not text:
        raise Malformed(Reason.ENDPOINT_ID, "it is empty")
    if (at := maybe_bad_character(text)) is not None:
        raise Malformed(Reason.ENDPOINT_ID, f"{text[at]!r} at {at}", at=at)
    if (size := len(text.encode())) > ENDPOINT_ID_BYTES_MAX:
        raise Malformed(Reason.ENDPOINT_ID, f"it has {size} bytes")
    return EndpointId(text)
