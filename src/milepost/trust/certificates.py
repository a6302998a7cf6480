"""Certificates, their revocation, and the certificate authority that signs both.

    Certificate { body, signature }      body = CertificateBody { id, role, key, not_before, not_after, serial, signing_key }
    Revocations { body, signature }      body = RevocationsBody { issued_at, serials }
    signatures are Ed25519, by the authority, over the purpose and the body as signed: "milepost certificate",
    "milepost revocations" for the list of all revoked certificates, "milepost revoked signers" for the list of signers

Invariants:
- the fields of a `Certificate` are those of its `data`: only `issue` and `read_certificate` create one. Reading does not imply
  trust: `CertificateAuthority.check` decides on that;
- a certificate has one canonical encoding: equivalent bytes in another one are refused, so that one cannot become many;
- a certificate passes if the authority signed it, its time has begun and is not over, and it is not revoked, in this order. Only
  a valid signature is cached; validity and revocation are checked each time;
- each revocation list is issued after the one before, and the list of all certificates only grows. Its signature makes a list
  trusted, whatever its origin; once a newer list is in use, an older one is refused;
- the list of signers is for endpoints: it has only certificates that can sign and have not expired, and its size is limited.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.message import DecodeError

from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import BEGINNING, Instant, check_instant
from milepost.model.messages import CERTIFICATE_BYTES_MAX, SIGNATURE_BYTES
from milepost.model.reasons import Malformed, Reason, Refused, shown
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams.areas import require
from milepost.wire.sealed import KEY_BYTES

REVOKED_MAX: Final = 1_000_000
"""Maximum serial numbers in a list; 8 bytes each."""

REVOKED_SIGNERS_MAX: Final = 7_000
"""Maximum serial numbers in the list of revoked signers, which must fit into one datagram."""


class RevocationScope(Enum):
    """The certificates that a revocation list covers; the value is the prefix of the signed bytes."""

    ALL = b"milepost revocations"
    SIGNERS = b"milepost revoked signers"

    @property
    def count_max(self) -> int:
        """Maximum serial numbers of a list."""
        return REVOKED_MAX if self is RevocationScope.ALL else REVOKED_SIGNERS_MAX


@dataclass(frozen=True, slots=True)
class Revocations:
    """A list of revoked serial numbers as the authority signed it; `data` is the encoded list."""

    issued_at: Instant
    serials: frozenset[int]
    data: bytes


def revoke(ca_key: bytes, previous: Revocations | None, serials: Iterable[int], now: Instant) -> Revocations:
    """Return the list that follows *previous*: all its serial numbers, and these."""
    all_serials = frozenset(serials) | (frozenset() if previous is None else previous.serials)
    return _sign_list(ca_key, RevocationScope.ALL, previous, all_serials, now)


def revoke_signers(ca_key: bytes, previous: Revocations | None, serials: Iterable[int], now: Instant) -> Revocations:
    """Return the list of revoked signers that follows *previous*: exactly these serial numbers."""
    return _sign_list(ca_key, RevocationScope.SIGNERS, previous, frozenset(serials), now)


def _sign_list(
    ca_key: bytes, scope: RevocationScope, previous: Revocations | None, serials: frozenset[int], now: Instant
) -> Revocations:
    _check_count(len(serials), scope)
    issued_at = now if previous is None else Instant(max(now, previous.issued_at + 1))  # also if the clock was set back
    body = pb.RevocationsBody(issued_at=issued_at, serials=sorted(serials)).SerializeToString(deterministic=True)
    signature = Ed25519PrivateKey.from_private_bytes(ca_key).sign(scope.value + body)
    data = pb.Revocations(body=body, signature=signature).SerializeToString(deterministic=True)
    return Revocations(issued_at, serials, data)


def read_revocations(data: bytes, ca_public_key: bytes, scope: RevocationScope = RevocationScope.ALL) -> Revocations:
    """Decode a list of this scope, signed by this authority; raise `Malformed` if the bytes are none."""
    try:
        message = pb.Revocations.FromString(data)
        Ed25519PublicKey.from_public_bytes(ca_public_key).verify(message.signature, scope.value + message.body)
        fields = pb.RevocationsBody.FromString(message.body)
    except DecodeError:
        raise Malformed(Reason.MALFORMED, f"{len(data)} bytes that are not a revocation list") from None
    except InvalidSignature:
        raise Malformed(Reason.SIGNATURE_INVALID, "the revocation list is not signed by this certificate authority") from None
    require(fields, "issued_at")
    check_instant("issued_at", fields.issued_at)
    _check_count(len(fields.serials), scope)
    return Revocations(Instant(fields.issued_at), frozenset(fields.serials), data)


def _check_count(count: int, scope: RevocationScope) -> None:
    if count > scope.count_max:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{count} revoked certificates, {scope.count_max} are allowed")


EDGE: Final = "edge"
"""The role of an edge."""
SERVICE: Final = "service"
"""The role of a service of a site: the incident engine."""
OPERATOR: Final = "operator"
"""The role of an endpoint that may sign its own messages: a control room."""
SIGNING_ROLES: Final = frozenset({EDGE, SERVICE, OPERATOR})
"""The roles whose certificates have a signing key."""

CERTIFICATE_PURPOSE: Final = b"milepost certificate"
"""Prefix of signed bytes, so that a signature of one kind cannot pass as another."""

SERIAL_MAX: Final = 2**64 - 1

_ROLE: Final = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The binding of a key to an endpoint, signed by the authority; `data` is the encoded certificate."""

    id: EndpointId
    role: str
    key: bytes
    """X25519: the endpoint's static key in a handshake."""
    not_before: Instant
    not_after: Instant
    serial: int
    signing_key: bytes
    """Ed25519; empty: the endpoint signs nothing."""
    data: bytes


def issue(
    ca_key: bytes,
    *,
    id: str,  # noqa: A002  # named like the field
    role: str,
    key: bytes,
    not_before: Instant,
    not_after: Instant,
    serial: int,
    signing_key: bytes = b"",
) -> Certificate:
    """Return a certificate signed with the authority's private key; raise `Malformed` if a field is invalid."""
    endpoint_id(id)
    _check_role(role)
    check_instant("not_before", not_before)
    check_instant("not_after", not_after)
    _check_serial(serial)
    body = pb.CertificateBody(
        id=id, role=role, key=key, not_before=not_before, not_after=not_after, serial=serial, signing_key=signing_key
    ).SerializeToString(deterministic=True)
    signature = Ed25519PrivateKey.from_private_bytes(ca_key).sign(CERTIFICATE_PURPOSE + body)
    return read_certificate(_encode(body, signature))


def read_certificate(data: bytes) -> Certificate:
    """Decode a certificate without checking its signature; raise `Malformed` if the bytes are none."""
    body, signature = body_and_signature(data)
    if len(signature) != SIGNATURE_BYTES:
        raise _invalid_certificate(f"the signature has {len(signature)} bytes, not {SIGNATURE_BYTES}")
    if data != _encode(body, signature):
        raise _invalid_certificate("its encoding is not the canonical one")
    try:
        return _read_body(pb.CertificateBody.FromString(body), data)
    except DecodeError:
        raise _invalid_certificate(f"its body is {len(body)} bytes that are not a protobuf message CertificateBody") from None
    except Malformed as fault:
        raise _invalid_certificate(fault.detail) from None


def body_and_signature(data: bytes) -> tuple[bytes, bytes]:
    """Return the signed bytes and the signature."""
    if len(data) > CERTIFICATE_BYTES_MAX:
        raise _invalid_certificate(f"it has {len(data)} bytes, {CERTIFICATE_BYTES_MAX} are allowed")
    try:
        message = pb.Certificate.FromString(data)
    except DecodeError:
        raise _invalid_certificate(f"{len(data)} bytes that are not a protobuf message Certificate") from None
    return message.body, message.signature


def _encode(body: bytes, signature: bytes) -> bytes:
    data: bytes = pb.Certificate(body=body, signature=signature).SerializeToString(deterministic=True)
    return data


def _read_body(fields: pb.CertificateBody, data: bytes) -> Certificate:
    require(fields, "id", "role", "key", "not_before", "not_after", "serial")
    _check_role(fields.role)
    if len(fields.key) != KEY_BYTES or len(fields.signing_key) not in (0, KEY_BYTES):
        raise _invalid_certificate(
            f"its keys have {len(fields.key)} and {len(fields.signing_key)} bytes, not {KEY_BYTES}, and {KEY_BYTES} or 0"
        )
    check_instant("not_before", fields.not_before)
    check_instant("not_after", fields.not_after)
    if fields.not_after < fields.not_before:
        raise _invalid_certificate("not_after is before not_before")
    _check_serial(fields.serial)
    return Certificate(
        id=endpoint_id(fields.id),
        role=fields.role,
        key=fields.key,
        not_before=Instant(fields.not_before),
        not_after=Instant(fields.not_after),
        serial=fields.serial,
        signing_key=fields.signing_key,
        data=data,
    )


def _check_role(role: str) -> None:
    if _ROLE.fullmatch(role) is None:
        raise _invalid_certificate(f"the role is {shown(role)}, not 1 to 32 characters of a-z, 0-9 and -")


def _check_serial(serial: int) -> None:
    if not 0 < serial <= SERIAL_MAX:
        raise _invalid_certificate(f"the serial number is {shown(serial)}, not in 1..{SERIAL_MAX}")


def _invalid_certificate(detail: str) -> Malformed:
    return Malformed(Reason.CERTIFICATE_INVALID, detail)


CACHED_MAX: Final = 100_000
"""Maximum certificates whose signature is cached; the oldest is evicted first."""


class CertificateAuthority:
    """Checks certificates against one authority's public key and its latest revocation list."""

    __slots__ = ("_cached", "_issued_at", "_public", "revoked")

    def __init__(self, public_key: bytes) -> None:
        self._public = Ed25519PublicKey.from_public_bytes(public_key)
        self._cached: OrderedDict[bytes, None] = OrderedDict()
        self._issued_at = BEGINNING
        self.revoked: frozenset[int] = frozenset()
        """The serial numbers of the list in use."""

    def check(self, certificate: Certificate, now: Instant) -> Refused | None:
        """Return why a certificate is refused, or `None`."""
        if not self._is_signed(certificate.data):
            return Refused(
                Reason.CERTIFICATE_INVALID, f"the certificate of {certificate.id!r} is not signed by this certificate authority"
            )
        if now < certificate.not_before:
            return Refused(Reason.CERTIFICATE_EXPIRED, f"the certificate of {certificate.id!r} is not valid yet")
        if now > certificate.not_after:
            return Refused(Reason.CERTIFICATE_EXPIRED, f"the certificate of {certificate.id!r} is no longer valid")
        if self.is_revoked(certificate.serial):
            return Refused(
                Reason.CERTIFICATE_REVOKED, f"the certificate {certificate.serial:016x} of {certificate.id!r} is revoked"
            )
        return None

    @property
    def issued_at(self) -> Instant:
        """When the list in use was issued; `BEGINNING`: there is none."""
        return self._issued_at

    def use(self, revocations: Revocations) -> None:
        """Use this list from now on; raise `Malformed` if it is older than the one in use, which then stays."""
        if revocations.issued_at < self._issued_at:
            raise Malformed(Reason.TIME_RANGE, "the revocation list is older than the one in use")
        self._issued_at = revocations.issued_at
        self.revoked = revocations.serials

    def is_revoked(self, serial: int) -> bool:
        """Return whether the list in use has this serial number."""
        return serial in self.revoked

    def _is_signed(self, data: bytes) -> bool:
        digest = sha256(data).digest()
        if digest in self._cached:
            return True
        body, signature = body_and_signature(data)
        try:
            self._public.verify(signature, CERTIFICATE_PURPOSE + body)
        except InvalidSignature:
            return False
        if len(self._cached) >= CACHED_MAX:
            self._cached.popitem(last=False)
        self._cached[digest] = None
        return True
