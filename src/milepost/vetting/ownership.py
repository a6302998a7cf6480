"""Ownership of sessions: whether a client resumes the session of its endpoint, replaces it, or is refused.

    the client that connects                 its connection          the session that the endpoint has
    equal owner                              resumes it              goes on; an older connection is closed
    other owner, stronger proof              replaces it             ends; its queue is dropped, its will is not published
    other owner, equal proof, policy new     replaces it             ends likewise
    other owner, equal proof, policy refuse  is refused              stays as it is
    other owner, weaker proof                is refused              stays as it is

Invariants:
- a session is connected or kept, here or at another edge: the same table holds;
- no client gets a message that was queued for another owner.
"""

from enum import Enum

from milepost.model.reasons import Reason, Refused, shown
from milepost.vetting.access import ClientIdentity


class OtherUserPolicy(Enum):
    """The answer to a client with the client id of another user's session, with equal proof."""

    REFUSE = "refuse"
    """It is refused."""
    NEW = "new"
    """It gets a new, empty session; the other one ends."""


class ClientIdPolicy(Enum):
    """The client ids that a user may choose."""

    ANY = "any"
    """Every id."""
    USER = "user"
    """The user name, or ids that begin with it and a slash, such as `ada/phone`."""


def refuse_client_id(client_id: str, user: str | None, policy: ClientIdPolicy) -> Refused | None:
    """Check the client id that a user has chosen; anonymous clients have no name to compare it with."""
    if policy is ClientIdPolicy.ANY or not user or client_id == user or client_id.startswith(f"{user}/"):
        return None
    return Refused(Reason.CLIENT_ID, f"of the user {shown(user)}: use the user name, or an id that begins with it and a slash")


class Takeover(Enum):
    """The effect of a new connection on the session that its endpoint has."""

    RESUME = "resume"
    REPLACE = "replace"
    REFUSE = "refuse"


def takeover(holder: ClientIdentity, newcomer: ClientIdentity, policy: OtherUserPolicy) -> Takeover:
    """Decide what *newcomer* may do to the session of *holder*, which has the same client id."""
    if newcomer.owner == holder.owner:
        return Takeover.RESUME
    if newcomer.proof == holder.proof:
        return Takeover.REPLACE if policy is OtherUserPolicy.NEW else Takeover.REFUSE
    return Takeover.REPLACE if newcomer.proof > holder.proof else Takeover.REFUSE


def not_owner(newcomer: ClientIdentity, where: str = "here") -> Refused:
    """Return the refusal of a client whose endpoint has a session of another owner; it does not name the owner."""
    client = f"{newcomer.client_id} as {newcomer.owner or 'an anonymous client'}"
    return Refused(Reason.SESSION_OF_ANOTHER_OWNER, f"{client}: the session {where} has another owner")
