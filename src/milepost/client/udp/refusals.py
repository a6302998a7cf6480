"""An edge's no as a `RefusedByEdge`, and whether it makes sense to ask for a session again."""

from typing import Final

from milepost.client.faults import RefusedByEdge
from milepost.model.reasons import Reason
from milepost.model.sessions import Refusal

PASSING: Final = frozenset(
    {
        Reason.ENDPOINTS_FULL,
        Reason.SESSION_UNKNOWN,
        Reason.RATE_TOO_HIGH,
        Reason.CONNECTIONS_FULL,
        Reason.HANDSHAKES_FULL,
        Reason.STORAGE_UNAVAILABLE,
        Reason.SHUTTING_DOWN,
        Reason.PREFIX_RATE_TOO_HIGH,
        Reason.EDGE_RATE_TOO_HIGH,
        Reason.HANDSHAKE_STALE,
        Reason.COOKIE_NEEDED,
    }
)
"""Reasons not to open a session that may be over in a moment; with all others asking again brings nothing."""


def refused_by(refusal: Refusal) -> RefusedByEdge:
    """What the edge said; what to do about it, if this release knows the reason."""
    is_known = refusal.reason in Reason.__members__.values()
    return RefusedByEdge(refusal.reason, refusal.name, refusal.detail, Reason(refusal.reason).advice if is_known else "")


def is_final(refusal: Refusal) -> bool:
    """Whether an INIT that was answered so should not be sent again."""
    return refusal.reason not in PASSING
