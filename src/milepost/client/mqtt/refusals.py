"""A server's no: its reason code and reason string as a `RefusedByEdge`, and whether it makes sense to come back."""

import re
from typing import Final

from milepost.client.faults import RefusedByEdge
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Code, Properties

_OURS: Final = re.compile(r"(\d{1,5}) ([A-Z][A-Z0-9_]*): ?(.*)", re.DOTALL)
"""How an edge of ours words a refusal: number, name, what exactly, and what to do about it."""

PASSING: Final = frozenset(
    {
        Code.SUCCESS,
        Code.UNSPECIFIED_ERROR,
        Code.SERVER_UNAVAILABLE,
        Code.SERVER_BUSY,
        Code.SERVER_SHUTTING_DOWN,
        Code.KEEP_ALIVE_TIMEOUT,
        Code.MESSAGE_RATE_TOO_HIGH,
        Code.QUOTA_EXCEEDED,
        Code.CONNECTION_RATE_EXCEEDED,
        Code.MAXIMUM_CONNECT_TIME,
    }
)
"""Reasons to end a connection that may be over in a moment. With all others (another client took the session over, a password is
wrong, we broke the protocol) coming back would do harm, or nothing."""

_PASSING_REASONS: Final = frozenset({Reason.STORAGE_UNAVAILABLE.value, Reason.SHUTTING_DOWN.value})


def refused_by(code: Code, properties: Properties) -> RefusedByEdge:
    """What the server said."""
    said = properties.reason_string or ""
    found = _OURS.fullmatch(said)
    if found is None:
        return RefusedByEdge(code.value, code.name, said or _elsewhere(properties))
    number, name, rest = int(found[1]), found[2], found[3]
    if number not in Reason.__members__.values():
        return RefusedByEdge(number, name, rest)
    advice = Reason(number).advice
    return RefusedByEdge(number, name, rest.removesuffix(advice).rstrip().removesuffix("."), advice)


def is_final(code: Code, refused: RefusedByEdge) -> bool:
    """Whether a connection that ended so should not be tried again."""
    return code not in PASSING and refused.number not in _PASSING_REASONS


def _elsewhere(properties: Properties) -> str:
    return f"the server says to go to {properties.server_reference}" if properties.server_reference else ""
