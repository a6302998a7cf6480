"""The certificate authority that a client trusts: which messages it accepts, and their signers.

    signed        verified: source, validity, certificate, revoked signers ─▶ delivered with its signer, or suppressed
    not signed    on a topic that requires a signature ─▶ suppressed; on any other ─▶ delivered

Invariants:
- a message with an invalid signature is suppressed on every topic;
- of the last `NAMES_MAX` signed messages none is delivered twice; only a verified message is remembered, so that a forged one can
  neither block a genuine one nor displace it from memory;
- the list of revoked signers is trusted by its own signature, whichever edge it came from, and never replaced by an older one.
"""

from collections.abc import Sequence
from typing import Final

from milepost.client.messages import OutgoingMessage, message_of
from milepost.model.endpoints import EndpointId, SourceId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId, MessageSigner
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.topics import check_filter, filter_matches
from milepost.trust.certificates import CertificateAuthority, RevocationScope, read_revocations
from milepost.trust.signing import VALIDITY_NS_MAX, Signer, Verifier

NAMES_MAX: Final = 4096
"""Maximum signed messages remembered; the oldest is evicted first."""


def signed_message_of(
    publication: OutgoingMessage, signer: Signer, source: EndpointId, number: MessageId, now: Instant
) -> Message:
    """Return an operator's signed message, complete, because the edge fills in nothing; raise `Malformed` if it is invalid."""
    message = message_of(publication, source, number, now)
    if message.valid_until - message.seen_at > VALIDITY_NS_MAX:
        is_open = publication.valid_for_s is None and publication.valid_until is None
        raise Malformed(
            Reason.FIELD_MISSING if is_open else Reason.FIELD_RANGE,
            "valid_for_s, valid_until: a signed message is valid for at most 24 hours",
        )
    return signer.sign(message)


class ClientTrust:
    """The verification of one client's messages."""

    def __init__(self, ca: bytes, signed_topics: Sequence[str] = ()) -> None:
        for topic_filter in signed_topics:
            check_filter(topic_filter)
        self.authority = CertificateAuthority(ca)
        self._public = ca
        self._verifier = Verifier(self.authority)
        self._signed_topics = tuple(signed_topics)
        self._delivered: dict[tuple[SourceId, MessageId], None] = {}

    def verify(self, message: Message, now: Instant) -> MessageSigner | Refused | None:
        """Return who signed a message, why it is suppressed, or None if it needs no signature and has none."""
        return self._verifier.check(message, now) if message.signature else self.refuse_unsigned(message.topic)

    def refuse_unsigned(self, topic: str) -> Refused | None:
        """Refuse a message without a signature on a topic that requires one."""
        if not any(filter_matches(topic_filter, topic) for topic_filter in self._signed_topics):
            return None
        return Refused(Reason.SIGNATURE_INVALID, f"messages on {topic} must be signed")

    def was_delivered(self, message: Message) -> bool:
        """Return whether a verified message was delivered before."""
        return message.key in self._delivered

    def remember(self, message: Message) -> None:
        """Record the delivery of a verified message."""
        if len(self._delivered) >= NAMES_MAX:
            del self._delivered[next(iter(self._delivered))]
        self._delivered[message.key] = None

    def use_revoked_signers(self, data: bytes) -> Refused | None:
        """Use a list of revoked signers, unless it is not valid or older than the one in use."""
        try:
            self.authority.use(read_revocations(data, self._public, RevocationScope.SIGNERS))
        except Malformed as fault:
            return fault.refused
        return None
