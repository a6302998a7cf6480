"""Revocations: the serial numbers of certificates that hold no longer, in one list that the authority signs.

    Revocations { body, signature }      body = RevocationsBody { issued_at, serials }
    the signature is the authority's, Ed25519, over "milepost revocations" and the body as it was signed

What must hold:
- a list only grows, and each is issued after the one before: whoever holds a newer one never goes back (`Authority.use`);
- the list is believed for its signature, wherever it was found.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.message import DecodeError

from milepost.model.instants import Instant, check_instant
from milepost.model.reasons import Malformed, Reason
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams.presence import require

REVOKED_MAX: Final = 1_000_000
"""The most serial numbers of a list; 8 bytes each."""

REVOCATIONS_PURPOSE: Final = b"milepost revocations"


@dataclass(frozen=True, slots=True)
class Revocations:
    """A list as the authority signed it; `data` is the whole in bytes."""

    issued_at: Instant
    serials: frozenset[int]
    data: bytes


def revoke(authority_key: bytes, former: Revocations | None, serials: Iterable[int], now: Instant) -> Revocations:
    """The list that follows the former one: all that it has, and these."""
    issued_at, everything = now, frozenset(serials)
    if former is not None:
        issued_at = Instant(max(now, former.issued_at + 1))  # also when the authority's clock was set back
        everything |= former.serials
    _check_count(len(everything))
    body = pb.RevocationsBody(issued_at=issued_at, serials=sorted(everything)).SerializeToString(deterministic=True)
    signature = Ed25519PrivateKey.from_private_bytes(authority_key).sign(REVOCATIONS_PURPOSE + body)
    data = pb.Revocations(body=body, signature=signature).SerializeToString(deterministic=True)
    return Revocations(issued_at, everything, data)


def read_revocations(data: bytes, authority_public: bytes) -> Revocations:
    """The list that some bytes are, signed by this authority; `Malformed` if they are none."""
    try:
        whole = pb.Revocations.FromString(data)
        Ed25519PublicKey.from_public_bytes(authority_public).verify(whole.signature, REVOCATIONS_PURPOSE + whole.body)
        part = pb.RevocationsBody.FromString(whole.body)
    except DecodeError:
        raise Malformed(Reason.MALFORMED, f"{len(data)} bytes that are no list of revocations") from None
    except InvalidSignature:
        raise Malformed(Reason.SIGNATURE_INVALID, "the list of revocations is not signed by this authority") from None
    require(part, "issued_at")
    check_instant("issued_at", part.issued_at)
    _check_count(len(part.serials))
    return Revocations(Instant(part.issued_at), frozenset(part.serials), data)


def _check_count(count: int) -> None:
    if count > REVOKED_MAX:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{count} revoked certificates, {REVOKED_MAX} are allowed")
