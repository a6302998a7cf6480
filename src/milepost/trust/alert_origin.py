"""The origin of an alert: its source and its signer. No other may replace or cancel it. Decisions without I/O.

    alert raised             replaced or cancelled by
    by an anonymous client   a message of the same source
    by a proven client       a message of the same source and the same owner: its user, or its certificate
    signed                   a message of the same source, signed by a certificate of the same role and id

A client id is free again once its session has ended, so the source alone does not bind a client's alert. Sources are
authenticated: by the session of an endpoint, by the sender of a record for edges and services. The signature protects an alert
also against a member of the site that lies about the sender.
"""

from functools import lru_cache
from typing import Final

from milepost.model.reasons import Malformed

UNSIGNED: Final = ""
"""The signer of messages without a valid signature."""


def owned_by(owner: str) -> str:
    """Return the signer of unsigned messages of a client, by the owner of its session."""
    return f"by {owner}" if owner else UNSIGNED


def may_change(raised_by: str, signer: str) -> bool:
    """Return whether a message with this signer may replace or cancel an alert of the same source with the signer *raised_by*."""
    return raised_by in (UNSIGNED, signer)


@lru_cache(maxsize=1_000)
def signer_in(certificate: bytes) -> str:
    """Return the signer that a certificate names, as ROLE ID; `UNSIGNED` if there is none. The signature is not verified here."""
    if not certificate:
        return UNSIGNED
    from milepost.trust.certificates import read_certificate  # noqa: PLC0415  # loads OpenSSL, which unsigned messages do not need

    try:
        found = read_certificate(certificate)
    except Malformed:
        return UNSIGNED
    return f"{found.role} {found.id}"
