"""An edge with a certificate authority and signed messages of its site's log: on the log, in its inbox, during catch-up."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, START
from milepost.broker.broker import Broker
from milepost.broker.session import Session
from milepost.broker.session_transfer import SessionSnapshot
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import OnTopic
from milepost.model.reasons import Reason
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    Epoch,
    ForwardedMessage,
    Handover,
    HeldSubscription,
    LoggedRecord,
    SiteRecord,
)
from milepost.model.subscriptions import Subscription
from milepost.trust.certificates import OPERATOR
from milepost.trust.signing import Signer, Verifier
from milepost.vetting.access import ClientIdentity
from milepost.wire.records import to_record
from udp_edge_in_memory import EDGE_SIGNING, EDGE_STATIC, certificate_of, identity

CAR, RESIDENT = EndpointId("car"), EndpointId("resident")
HERE, THERE, ABROAD = EdgeRef("north", "here"), EdgeRef("north", "edge-1"), EdgeRef("south", "abroad")
ROOM = certificate_of("room", EDGE_STATIC, OPERATOR, 2, signing=EDGE_SIGNING)
HOUR_NS = 3_600 * SECOND_NS


class Edge:
    """An edge with an authority, a session that is catching up, and one that has."""

    def __init__(self) -> None:
        self.broker = Broker(SMALL, EndpointId("here"))
        self.authority = identity().certificate_authority
        self.broker.verify_with(Verifier(self.authority))
        self.member = SiteMember(self.broker, HERE, SiteLimits())
        self.member.begin_at(0, 0)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, START)
        self._offset = 0
        held = {name: (HeldSubscription("t", Subscription(name, OnTopic("t"))),) for name in (CAR, RESIDENT)}
        self.read(Handover(CAR, Epoch(START), ABROAD, HERE, 1, expiry_ns=HOUR_NS, subscriptions=held[CAR]))
        catching_up = self.member.roaming.residencies[CAR].catching_up
        assert catching_up is not None
        self.catching_up = catching_up
        self.catching_up.sites_to_reread = set()  # there is nothing to read again
        resident = self.broker.adopt_session(
            SessionSnapshot(RESIDENT, HOUR_NS, None, held[RESIDENT], (), (), (), ClientIdentity(RESIDENT)), START
        )
        assert isinstance(resident, Session)
        self.broker.resume_subscription(resident, "t")

    def read(self, record: SiteRecord, topic: str = CROSS_HUB) -> None:
        logged = LoggedRecord(self._offset, str(HERE), to_record(record), START)
        self._offset += 1
        self.member.on_records(topic, [logged], START)

    def bodies(self, name: EndpointId) -> list[bytes]:
        session = self.broker.find_session(name)
        assert session is not None
        waiting = session.queue.all() if session.queue is not None else []
        return [delivery.publication.body for _, delivery in waiting]


def signed_message() -> Message:
    valid_until = Instant(START + 60 * SECOND_NS)
    message = Message(MessageId(7), EndpointId("room"), "t", START, valid_until=valid_until, reliable=True, body=b"genuine")
    return Signer(EDGE_SIGNING, ROOM).sign(message)


@pytest.mark.parametrize("is_to_inbox", [False, True])
@pytest.mark.parametrize(
    ("attack", "reason"),
    [("none", None), ("forged", Reason.SIGNATURE_INVALID), ("revoked", Reason.CERTIFICATE_REVOKED), ("expired", None)],
)
def test_signed_messages_of_the_log_are_delivered_only_with_a_valid_signature(
    attack: str, reason: Reason | None, is_to_inbox: bool
) -> None:
    edge, message = Edge(), signed_message()
    if attack == "forged":
        message = replace(message, body=b"forged")
    elif attack == "revoked":
        edge.authority.revoked = frozenset({ROOM.serial})
    elif attack == "expired":
        message = replace(message, seen_at=Instant(START - HOUR_NS), valid_until=Instant(START - 1))
    edge.read(ForwardedMessage(THERE, 5, message, qos=1), edge.member.inbox if is_to_inbox else CROSS_HUB)
    expected = [b"genuine"] if attack == "none" else []
    assert edge.bodies(RESIDENT) == expected
    if not is_to_inbox:
        assert edge.bodies(CAR) == expected
        assert edge.catching_up.parts[0].cursors[str(THERE)] == 5, "also a refused message is passed"
    assert edge.broker.counts.refused == ({} if reason is None else {reason: 1}), "counted once"
