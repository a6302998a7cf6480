"""Endpoints: anything that sends or receives. Here only their names; who they are is known by sessions and `trust`."""

from typing import Final, NewType

from milepost.model.reasons import Malformed, Reason
from milepost.model.texts import maybe_bad_character

EndpointId = NewType("EndpointId", str)

ENDPOINT_ID_BYTES_MAX: Final = 128


def endpoint_id(text: str) -> EndpointId:
    """The endpoint's name: 1 to 128 bytes of UTF-8 without control characters."""
    if not isinstance(text, str) or not text:
        raise Malformed(Reason.ENDPOINT_ID, "it is empty")
    if (at := maybe_bad_character(text)) is not None:
        raise Malformed(Reason.ENDPOINT_ID, f"{text[at]!r} at {at}", at=at)
    if (size := len(text.encode())) > ENDPOINT_ID_BYTES_MAX:
        raise Malformed(Reason.ENDPOINT_ID, f"it has {size} bytes")
    return EndpointId(text)
