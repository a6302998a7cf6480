"""Certificates: an authority's word that a key belongs to an endpoint id, in a role, for a time.

    Certificate { body, signature }      body = CertificateBody { id, role, key, not_before, not_after, serial, signing_key }
    the signature is the authority's, Ed25519, over "milepost certificate" and the body as it was signed

What must hold:
- a `Certificate` says what its `data` says: only `issue` and `read_certificate` make one;
- reading says nothing about trust: `Authority.check` does;
- one certificate has one form: bytes that say the same in another way are refused, so that nobody can make many out of one.
"""

import re
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError

from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import Instant, check_instant
from milepost.model.messages import CERTIFICATE_BYTES_MAX, SIGNATURE_BYTES
from milepost.model.reasons import Malformed, Reason, shown
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams.presence import require
from milepost.wire.sealed import KEY_BYTES

EDGE: Final = "edge"
"""The role of an edge."""

CERTIFICATE_PURPOSE: Final = b"milepost certificate"
"""What the authority signs begins with it, so that no signature can be taken for one of another kind."""

SERIAL_MAX: Final = 2**64 - 1

_ROLE: Final = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whose key it is, as the authority said it; `data` is the whole in bytes."""

    id: EndpointId
    role: str
    key: bytes
    """X25519: the endpoint's static key in a handshake."""
    not_before: Instant
    not_after: Instant
    serial: int
    signing_key: bytes
    """Ed25519; empty = it signs nothing."""
    data: bytes


def issue(
    authority_key: bytes,
    *,
    id: str,  # noqa: A002  # named like the field
    role: str,
    key: bytes,
    not_before: Instant,
    not_after: Instant,
    serial: int,
    signing_key: bytes = b"",
) -> Certificate:
    """A certificate signed with the authority's private key; `Malformed` if it would say nonsense."""
    endpoint_id(id)
    _check_role(role)
    check_instant("not_before", not_before)
    check_instant("not_after", not_after)
    _check_serial(serial)
    body = pb.CertificateBody(
        id=id, role=role, key=key, not_before=not_before, not_after=not_after, serial=serial, signing_key=signing_key
    ).SerializeToString(deterministic=True)
    signature = Ed25519PrivateKey.from_private_bytes(authority_key).sign(CERTIFICATE_PURPOSE + body)
    return read_certificate(_written(body, signature))


def read_certificate(data: bytes) -> Certificate:
    """The certificate that some bytes are, signed by whomever; `Malformed` if they are none."""
    body, signature = body_and_signature(data)
    if len(signature) != SIGNATURE_BYTES:
        raise _invalid(f"the signature has {len(signature)} bytes, not {SIGNATURE_BYTES}")
    if data != _written(body, signature):
        raise _invalid("it is not in its one form")
    try:
        return _read_body(pb.CertificateBody.FromString(body), data)
    except DecodeError:
        raise _invalid(f"its body is {len(body)} bytes that are no protobuf message CertificateBody") from None
    except Malformed as fault:
        raise _invalid(fault.detail) from None


def body_and_signature(data: bytes) -> tuple[bytes, bytes]:
    """What was signed, and the signature."""
    if len(data) > CERTIFICATE_BYTES_MAX:
        raise _invalid(f"it has {len(data)} bytes, {CERTIFICATE_BYTES_MAX} are allowed")
    try:
        whole = pb.Certificate.FromString(data)
    except DecodeError:
        raise _invalid(f"{len(data)} bytes that are no protobuf message Certificate") from None
    return whole.body, whole.signature


def _written(body: bytes, signature: bytes) -> bytes:
    data: bytes = pb.Certificate(body=body, signature=signature).SerializeToString(deterministic=True)
    return data


def _read_body(part: pb.CertificateBody, data: bytes) -> Certificate:
    require(part, "id", "role", "key", "not_before", "not_after", "serial")
    _check_role(part.role)
    if len(part.key) != KEY_BYTES or len(part.signing_key) not in (0, KEY_BYTES):
        raise _invalid(f"its keys have {len(part.key)} and {len(part.signing_key)} bytes: {KEY_BYTES}, and {KEY_BYTES} or none")
    check_instant("not_before", part.not_before)
    check_instant("not_after", part.not_after)
    if part.not_after < part.not_before:
        raise _invalid("it ends before it begins")
    _check_serial(part.serial)
    return Certificate(
        id=endpoint_id(part.id),
        role=part.role,
        key=part.key,
        not_before=Instant(part.not_before),
        not_after=Instant(part.not_after),
        serial=part.serial,
        signing_key=part.signing_key,
        data=data,
    )


def _check_role(role: str) -> None:
    if _ROLE.fullmatch(role) is None:
        raise _invalid(f"the role is {shown(role)}: 1 to 32 of a-z, 0-9 and -")


def _check_serial(serial: int) -> None:
    if not 0 < serial <= SERIAL_MAX:
        raise _invalid(f"the serial number is {shown(serial)}: from 1 up to {SERIAL_MAX}")


def _invalid(detail: str) -> Malformed:
    return Malformed(Reason.CERTIFICATE_INVALID, detail)
