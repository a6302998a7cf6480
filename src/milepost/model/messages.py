"""Messages: subject (topic, tags), location (place, address), time (seen, valid until) and payload (fields, body)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Final, NamedTuple, NewType

from milepost.model.addresses import Address, ToContent
from milepost.model.endpoints import EndpointId, SourceId, source_id
from milepost.model.instants import FOREVER, Instant, check_instant
from milepost.model.places import Place
from milepost.model.priorities import DEADLINE_NS, Priority
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.tags import Tag, check_tags
from milepost.model.topics import check_topic

MessageId = NewType("MessageId", int)
"""Chosen by the source, unsigned 64 bits; (source, id) identifies a message permanently, so names never clash (T2)."""

Scalar = str | int | float | bool | bytes
"""Types that a field of the payload may have (M6)."""

MESSAGE_BYTES_MAX: Final = 64_000
"""Maximum size of a message encoded for one datagram: 64 KB less room for seal and headers (M6)."""

BODY_BYTES_MAX: Final = 2_000_000
"""Maximum size of a body on listeners that do not use datagrams."""

SIGNATURE_BYTES: Final = 64
CERTIFICATE_BYTES_MAX: Final = 1_000

FIELDS_MAX: Final = 64
FIELD_NAME_CHARACTERS_MAX: Final = 64

NO_FIELDS: Final[Mapping[str, Scalar]] = MappingProxyType({})

UNPUBLISH: Final = "Unpublish"
"""Topic on which a source retracts a message."""
UNPUBLISHED_ID: Final = "id"
"""Field with the id of the retracted message (T6)."""
ID_DIGITS_MAX: Final = 20
"""Maximum decimal digits of a 64-bit number."""


class MessageSigner(NamedTuple):
    """The verified signer of a message, by the certificate that the message carries."""

    role: str
    """`edge`, `service` or `operator`."""
    id: EndpointId

    def __str__(self) -> str:
        return f"{self.role} {self.id}"


@dataclass(frozen=True, slots=True)
class Message:
    """A published message. Applications interpret `fields` and `body`; the system does not, except where a rule asks for it."""

    id: MessageId
    source: SourceId
    topic: str
    seen_at: Instant
    tags: frozenset[Tag] = frozenset()
    address: Address = field(default_factory=ToContent)
    place: Place | None = None
    valid_until: Instant = FOREVER
    priority: Priority = Priority.CONVENIENCE
    reliable: bool = False
    fields: Mapping[str, Scalar] = field(default_factory=lambda: NO_FIELDS)
    body: bytes = b""
    signature: bytes = b""
    """Authenticates the messages of edges, services and operators (M28)."""
    certificate: bytes = b""
    """Certificate of the signer."""

    def __post_init__(self) -> None:
        check_message_id(self.id)
        source_id(self.source)
        check_topic(self.topic)
        check_tags(self.tags)
        check_instant("seen_at", self.seen_at)
        check_instant("valid_until", self.valid_until, may_be_forever=True)
        if self.valid_until < self.seen_at:
            raise Malformed(
                Reason.VALIDITY_BACKWARDS, f"validity ends {self.seen_at - self.valid_until} ns before the message was seen"
            )
        _check_fields(self.fields)
        if len(self.body) > BODY_BYTES_MAX:
            raise Malformed(Reason.MESSAGE_TOO_LARGE, f"the body has {len(self.body)} bytes, {BODY_BYTES_MAX} are allowed")
        _check_signature(self.signature, self.certificate)

    @property
    def key(self) -> tuple[SourceId, MessageId]:
        """The identity by which duplicates are detected."""
        return self.source, self.id

    @property
    def deadline(self) -> Instant:
        """When the message should have arrived: orders messages of one priority class."""
        return min(self.valid_until, Instant(self.seen_at + DEADLINE_NS[self.priority]))

    def is_expired(self, now: Instant) -> bool:
        """Return whether the message may no longer be delivered."""
        return now > self.valid_until


def check_message_id(number: int) -> None:
    """Raise `Malformed` unless *number* is a positive 64-bit integer; 0 is no message id."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**64:
        raise Malformed(Reason.FIELD_RANGE, f"the message's id is {shown(number)}, not in 1..2^64-1")


def _check_signature(signature: bytes, certificate: bytes) -> None:
    if bool(signature) != bool(certificate):
        raise Malformed(Reason.FIELD_MISSING, "a signature requires the signer's certificate, and vice versa")
    if signature and (len(signature) != SIGNATURE_BYTES or len(certificate) > CERTIFICATE_BYTES_MAX):
        sizes = f"{len(signature)} and {len(certificate)} bytes"
        raise Malformed(
            Reason.FIELD_RANGE, f"signature and certificate have {sizes}: {SIGNATURE_BYTES}, up to {CERTIFICATE_BYTES_MAX}"
        )


def _check_fields(fields: Mapping[str, Scalar]) -> None:
    if len(fields) > FIELDS_MAX:
        raise Malformed(Reason.TOO_MANY_FIELDS, f"{len(fields)} fields, {FIELDS_MAX} are allowed")
    for name, value in fields.items():
        if not isinstance(name, str) or not 0 < len(name) <= FIELD_NAME_CHARACTERS_MAX or not name.isprintable():
            raise Malformed(
                Reason.FIELD_RANGE, f"a field is named {str(name)[:20]!r}: 1 to {FIELD_NAME_CHARACTERS_MAX} printable characters"
            )
        if not isinstance(value, str | int | float | bool | bytes):
            raise Malformed(
                Reason.FIELD_TYPE, f"field {name!r} is a {type(value).__name__}, not a string, number, boolean or bytes"
            )
        is_too_big = isinstance(value, int) and not -(2**63) <= value < 2**63
        if is_too_big or (isinstance(value, float) and not isfinite(value)):
            raise Malformed(Reason.FIELD_RANGE, f"field {name!r} is {shown(value)}")


def maybe_unpublished(fields: Mapping[str, Scalar]) -> str | None:
    """Return the id of the message that a message on `UNPUBLISH` retracts; None if it names none (0 is no id)."""
    name = str(fields.get(UNPUBLISHED_ID, ""))
    is_id = name.isascii() and name.isdigit() and len(name) <= ID_DIGITS_MAX and int(name) > 0
    return name if is_id else None
