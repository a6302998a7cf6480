"""An edge of a site and the owners of sessions: refusals on arrival, claims that win or lose, handovers of other owners."""

from collections.abc import Iterable

import pytest

from edge_in_memory import SMALL, START
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.effects import CloseConnection, Welcome
from milepost.broker.session import Connection
from milepost.federation.claims import claim_for
from milepost.federation.handover import AWAITED_SITES_NS_MAX
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.residency import MoveOutcome
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.site_records import (
    AWAITED_HANDOVERS_MAX,
    AWAITED_SITES_MAX,
    CROSS_HUB,
    HANDOVER_ID_CHARACTERS_MAX,
    HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    ClaimNotice,
    EdgeRef,
    EndpointClaim,
    Epoch,
    Handover,
    HandoverTaken,
    LoggedRecord,
    MissedMessages,
    SiteRecord,
    claim_key,
    edge_ref,
)
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from milepost.wire.records import from_record, to_record

CAR = EndpointId("car")
HERE, THERE, ABROAD = EdgeRef("north", "here"), EdgeRef("north", "there"), EdgeRef("south", "abroad")
ANONYMOUS, ADA, MALLORY = ClientIdentity(CAR), ClientIdentity(CAR, "ada"), ClientIdentity(CAR, "mallory")
CERTIFIED = ClientIdentity(CAR, None, "vehicle")
HOUR_NS = 3_600 * SECOND_NS


class Edge:
    """An edge that has read its site's registry."""

    def __init__(self, *claims: EndpointClaim) -> None:
        self.now = START
        self.broker = Broker(SMALL)
        self.member = SiteMember(self.broker, HERE, SiteLimits())
        self.member.begin_at(0, 0)
        for claim in claims:
            self.claim(claim)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, self.now)

    def claim(self, claim: EndpointClaim) -> None:
        record = LoggedRecord(0, claim_key(CAR, claim.edge), to_record(claim), self.now)
        self.member.on_records(VEHICLE_INFO, [record], self.now)

    def read(self, *records: SiteRecord, topic: str = CROSS_HUB) -> None:
        logged = [LoggedRecord(offset, str(HERE), to_record(one), self.now) for offset, one in enumerate(records)]
        self.member.on_records(topic, logged, self.now)

    def arrive(self, identity: ClientIdentity, *, clean: bool = False) -> bool | Refused:
        return self.broker.arrive(CAR, identity, None, self.now, clean_start=clean)

    def connect(self, identity: ClientIdentity, *, clean: bool = False) -> ConnectResult | Refused:
        return self.broker.connect(
            CAR,
            connection=Connection(),
            identity=identity,
            rates=UNLIMITED,
            clean_start=clean,
            expiry_ns=HOUR_NS,
            window=10,
            encoding=1,
            will=None,
            now=self.now,
        )

    def disconnect(self) -> None:
        session = self.broker.find_session(CAR)
        assert session is not None
        self.broker.disconnect(session, self.now, publishes_will=False, expiry_ns=0)

    def append(self) -> list[LoggedRecord]:
        """Append what this edge has announced; return its claims and withdrawals, which it has yet to read."""
        batch = self.member.state.outbox.take_batch()
        self.member.state.outbox.confirm(batch)
        return [LoggedRecord(0, one.key, one.value, self.now) for one in batch if one.topic == VEHICLE_INFO]

    def read_back(self, records: list[LoggedRecord]) -> None:
        self.member.on_records(VEHICLE_INFO, records, self.now)

    def sent(self) -> list[SiteRecord | None]:
        return [from_record(one.value) if one.value else None for one in self.member.state.outbox.take_batch()]

    @property
    def owner(self) -> str | None:
        session = self.broker.find_session(CAR)
        return session.identity.owner if session is not None else None


def claim_at(edge: EdgeRef, identity: ClientIdentity, *, since: int = 0, after_ns: int = 0) -> EndpointClaim:
    return claim_for(CAR, edge, Epoch(START + after_ns), identity, Epoch(since))


def reason_of(answer: object) -> Reason | None:
    return answer.reason if isinstance(answer, Refused) else None


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("identity", [ANONYMOUS, ADA])
def test_a_client_that_would_lose_to_a_claim_of_the_site_is_refused_on_arrival(identity: ClientIdentity, clean: bool) -> None:
    edge = Edge(claim_at(THERE, CERTIFIED))
    assert reason_of(edge.arrive(identity, clean=clean)) is Reason.SESSION_OF_ANOTHER_OWNER
    assert reason_of(edge.connect(identity, clean=clean)) is Reason.SESSION_OF_ANOTHER_OWNER
    assert edge.member.roaming.residencies == {}


def test_a_claim_without_proof_changes_nothing_and_one_with_a_stronger_proof_ends_the_session() -> None:
    edge = Edge()
    edge.connect(ADA)
    edge.broker.take_actions()
    edge.claim(claim_at(THERE, ANONYMOUS, after_ns=HOUR_NS))
    assert edge.owner == ADA.owner
    edge.claim(claim_at(THERE, CERTIFIED, after_ns=-HOUR_NS))
    assert edge.owner is None
    (closed,) = [one for one in edge.broker.take_actions() if isinstance(one, CloseConnection)]
    assert closed.refused.reason is Reason.SESSION_OF_ANOTHER_OWNER
    assert not [one for one in edge.sent() if isinstance(one, Handover) and one.has_session]
    assert [move.outcome for move in edge.member.take_moves()] == [MoveOutcome.OUTRANKED]
    assert edge.member.state.registry.claim_of(CAR, HERE) is None


def test_an_anonymous_client_does_not_displace_a_user_that_waits_for_its_session() -> None:
    edge = Edge(claim_at(THERE, ADA, since=START))
    assert edge.arrive(ADA) is False
    assert reason_of(edge.arrive(ANONYMOUS, clean=True)) is Reason.SESSION_OF_ANOTHER_OWNER
    assert edge.member.roaming.residencies[CAR].identity == ADA


def test_a_certified_endpoint_displaces_a_client_that_waits_and_the_late_handover_is_discarded() -> None:
    edge = Edge(claim_at(THERE, ANONYMOUS))
    assert edge.arrive(ANONYMOUS) is False
    epoch = edge.member.roaming.residencies[CAR].epoch
    assert isinstance(edge.connect(CERTIFIED), ConnectResult)
    assert [one.refused is not None for one in edge.broker.take_actions() if isinstance(one, Welcome)] == [True]
    edge.read(Handover(CAR, epoch, THERE, HERE, 1, expiry_ns=HOUR_NS))
    assert edge.owner == CERTIFIED.owner
    assert edge.member.state.counts["handovers_of_another_owner"] == 1
    assert len([one for one in edge.sent() if isinstance(one, HandoverTaken)]) == 1


def test_a_handover_with_a_stronger_owner_ends_the_session_that_is_here() -> None:
    edge = Edge()
    edge.connect(ANONYMOUS)
    edge.read(Handover(CAR, Epoch(START), ABROAD, HERE, 1, expiry_ns=HOUR_NS, role="vehicle"))
    assert edge.owner == CERTIFIED.owner


def test_a_handover_carries_its_owner() -> None:
    edge = Edge()
    edge.connect(ADA)
    edge.claim(claim_at(THERE, ADA, since=START, after_ns=HOUR_NS))
    (handover,) = [one for one in edge.sent() if isinstance(one, Handover)]
    assert (handover.user, handover.role, handover.kept_since) == ("ada", "", Epoch(START))
    other = Edge()
    other.read(Handover(CAR, Epoch(START), THERE, HERE, 1, expiry_ns=HOUR_NS, user="ada", kept_since=Epoch(START)))
    assert reason_of(other.arrive(MALLORY)) is Reason.SESSION_OF_ANOTHER_OWNER


def test_a_notice_of_the_hub_ends_the_session_of_the_loser_and_does_not_lock_the_name_for_ever() -> None:
    edge = Edge()
    edge.connect(ANONYMOUS)
    edge.read(ClaimNotice(claim_at(ABROAD, CERTIFIED)), topic=edge.member.inbox)
    assert edge.owner is None
    assert edge.arrive(ANONYMOUS, clean=True) is True, "the claim at the other site may be over: the hub decides again"


def test_a_user_that_begins_a_new_session_keeps_its_endpoint_from_users_that_came_later() -> None:
    edge = Edge()
    edge.connect(ADA)
    edge.now = Instant(START + HOUR_NS)
    edge.connect(ADA, clean=True)
    edge.read(ClaimNotice(claim_at(ABROAD, MALLORY, since=START + 1, after_ns=1)), topic=edge.member.inbox)
    assert edge.owner == ADA.owner
    (own_claim,) = [one for one in edge.member.state.registry.claims_for(CAR) if one.edge == HERE]
    assert (own_claim.kept_since, own_claim.clean_start_epoch) == (Epoch(START), Epoch(edge.now))


def test_a_user_that_begins_a_new_session_at_another_edge_of_the_site_keeps_its_endpoint() -> None:
    edge = Edge(claim_at(THERE, ADA, since=START))
    edge.now = Instant(START + HOUR_NS)
    edge.connect(ADA, clean=True)
    assert [one.kept_since for one in edge.sent() if isinstance(one, EndpointClaim)] == [Epoch(START)]


def test_a_user_whose_session_has_ended_has_its_endpoint_since_it_came_back() -> None:
    edge = Edge()
    opened = edge.connect(ADA)
    assert isinstance(opened, ConnectResult)
    edge.broker.disconnect(opened.session, edge.now, publishes_will=False, expiry_ns=0)
    assert edge.member.state.registry.claims_for(CAR) == [], "the claim is withdrawn"
    edge.now = Instant(START + HOUR_NS)
    edge.connect(ADA, clean=True)
    assert [one.kept_since for one in edge.member.state.registry.claims_for(CAR)] == [Epoch(edge.now)]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_user_comes_back_after_a_certified_session_of_its_name_has_ended_here(is_late: bool) -> None:
    edge, unread = Edge(), list[LoggedRecord]()
    for change in (lambda: edge.connect(ADA), lambda: edge.connect(CERTIFIED), edge.disconnect):
        change()
        unread += edge.append()
        if not is_late:
            edge.read_back(unread)
            unread.clear()
    for record in unread:
        edge.read_back([record])
        assert edge.broker.refuse_takeover(CAR, ADA, edge.now) is None, "this edge has no session of another owner"
    assert edge.member.state.registry.claims_for(CAR) == []
    assert edge.arrive(ADA) is True
    assert isinstance(edge.connect(ADA), ConnectResult)


def test_earlier_claims_of_this_edge_that_are_read_late_do_not_replace_the_present_one() -> None:
    edge, unread = Edge(), list[LoggedRecord]()
    for change in (lambda: edge.connect(CERTIFIED), edge.disconnect, lambda: edge.connect(ADA)):
        change()
        unread += edge.append()
    for record in unread:
        edge.read_back([record])
        claim = edge.member.state.registry.claim_of(CAR, HERE)
        assert claim is not None
        assert claim.owner == ADA.owner
    assert reason_of(edge.arrive(MALLORY)) is Reason.SESSION_OF_ANOTHER_OWNER


def test_a_claim_of_an_earlier_process_without_a_session_refuses_nobody() -> None:
    edge = Edge()
    edge.claim(claim_at(HERE, CERTIFIED))
    assert edge.arrive(ADA) is True
    edge.connect(ADA)
    assert edge.member.state.registry.winner(CAR) == edge.member.state.registry.claim_of(CAR, HERE)
    assert edge.owner == ADA.owner


@pytest.mark.parametrize(
    "make",
    [
        lambda: MissedMessages(CAR, Epoch(1), EdgeRef("south", HUB), HERE, 1, "x" * (HANDOVER_ID_CHARACTERS_MAX + 1)),
        lambda: Handover(CAR, Epoch(1), THERE, HERE, 1, awaits={"south": ("x" * (HANDOVER_ID_CHARACTERS_MAX + 1),)}),
        lambda: Handover(CAR, Epoch(1), THERE, HERE, 1, awaits={"south": ("x",) * (AWAITED_HANDOVERS_MAX + 1)}),
        lambda: Handover(CAR, Epoch(1), THERE, HERE, 1, awaits=dict.fromkeys(map(str, range(AWAITED_SITES_MAX + 1)), ("x",))),
        lambda: edge_ref("north/" + "x" * 200),
        lambda: EndpointClaim(CAR, HERE, Epoch(1), owner="x" * 2_000),
    ],
)
def test_texts_and_collections_of_records_are_bounded(make: object) -> None:
    assert callable(make)
    with pytest.raises((Malformed, ValueError)):
        make()


def site_records() -> Iterable[SiteRecord]:
    yield Handover(CAR, Epoch(7), THERE, HERE, 1, user="ada", role="vehicle", kept_since=Epoch(3))
    yield claim_at(HERE, ADA, since=5)


def test_owners_survive_encoding_and_decoding() -> None:
    for record in site_records():
        assert from_record(to_record(record)) == record


def test_a_session_does_not_wait_for_the_hub_for_ever() -> None:
    edge = Edge()
    edge.read(Handover(CAR, Epoch(START), ABROAD, HERE, 1, expiry_ns=HOUR_NS * 48))
    residency = edge.member.roaming.residencies[CAR]
    assert residency.catching_up is not None
    assert residency.catching_up.awaits == {"south": ["south/abroad 1"]}
    edge.member.tick(Instant(edge.now + AWAITED_SITES_NS_MAX - 1))
    assert residency.catching_up.awaits
    edge.member.tick(Instant(edge.now + AWAITED_SITES_NS_MAX))
    assert residency.catching_up is None or not residency.catching_up.awaits
    assert edge.member.state.counts["missed_given_up"] == 1
