"""Endpoints: anything that sends or receives. Here only their names; who they are is known by sessions and `trust`."""

from typing import Final, NewType

from milepost.model.reasons import Malformed, Reason

EndpointId = NewType("EndpointId", str)

ENDPOINT_ID_BYTES_MAX: Final = 128


def endpoint_id(text: str) -> EndpointId:
    """The endpoint's name: 1 to 128 bytes of UTF-8 without control characters."""
    if not isinstance(text, str) or not text:
        raise Malformed(Reason.ENDPOINT_ID, "it is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as fault:
        raise Malformed(Reason.ENDPOINT_ID, f"a lone surrogate at {fault.start}", at=fault.start) from None
    if size > ENDPOINT_ID_BYTES_MAX:
        raise Malformed(Reason.ENDPOINT_ID, f"it has {size} bytes")
    for at, character in enumerate("" if text.isprintable() else text):
        if character < " " or "\x7f" <= character <= "\x9f":
            raise Malformed(Reason.ENDPOINT_ID, f"{character!r} at {at}", at=at)
    return EndpointId(text)
