"""Every move to an edge leaves one line for the operator: origin, outcome, reason, messages."""

from collections.abc import Iterable

from edge_in_memory import SMALL, START
from milepost.broker.broker import Broker
from milepost.broker.publication import Publication
from milepost.broker.state_codec import publication_to_bytes
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.member_state import MOVES_MAX
from milepost.federation.residency import Move, MoveOutcome, Residency
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    EndpointClaim,
    Epoch,
    Handover,
    LoggedRecord,
    QueuedMessage,
    SiteRecord,
    claim_key,
)
from milepost.vetting.access import ClientIdentity
from milepost.wire.records import to_record

CAR = EndpointId("car")
HERE, THERE = EdgeRef("north", "here"), EdgeRef("north", "there")


class Arrival:
    """An edge of a site whose registry has an endpoint at another edge; then the endpoint connects."""

    def __init__(self, *, end: int = 0) -> None:
        self.now = START
        self.broker = Broker(SMALL)
        self.member = SiteMember(self.broker, HERE, SiteLimits())
        self.member.begin_at(0, end)
        self.claim(THERE, START - 60 * SECOND_NS)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, self.now)
        assert not self.member.arrive(CAR, ClientIdentity(CAR), self.now, clean_start=False)
        self.epoch = self.member.roaming.residencies[CAR].epoch

    def claim(self, edge: EdgeRef, epoch: int) -> None:
        value = to_record(EndpointClaim(CAR, edge, Epoch(epoch)))
        self.member.on_records(VEHICLE_INFO, [LoggedRecord(0, claim_key(CAR, edge), value, self.now)], self.now)

    def read(self, *records: SiteRecord) -> None:
        logged = [LoggedRecord(offset, str(HERE), to_record(one), self.now) for offset, one in enumerate(records)]
        self.member.on_records(CROSS_HUB, logged, self.now)

    def handover(self, waiting: Iterable[QueuedMessage] = (), *, expiry_ns: int = 60 * SECOND_NS) -> Handover:
        return Handover(CAR, self.epoch, THERE, HERE, 1, expiry_ns=expiry_ns, queued=tuple(waiting), offsets={HERE.site: 0})

    def pass_s(self, seconds: float) -> None:
        self.now = Instant(self.now + int(seconds * SECOND_NS))
        self.member.tick(self.now)


def queued(number: int) -> QueuedMessage:
    data = publication_to_bytes(Publication("t", b"x", START, source=EndpointId("pub"), qos=1))
    return QueuedMessage(number, 1, False, False, (), False, "", 0, data)


def test_a_completed_move_has_its_origin_its_messages_and_its_duration() -> None:
    edge = Arrival()
    edge.now = Instant(edge.now + SECOND_NS // 4)
    edge.read(edge.handover([queued(1), queued(2)]))
    why = "the session has caught up"
    assert edge.member.take_moves() == [Move(CAR, "north/there", "north/here", MoveOutcome.COMPLETED, why, 2, SECOND_NS // 4)]
    assert edge.member.take_moves() == []


def test_a_session_that_is_not_accepted_is_a_refused_move_with_the_reason() -> None:
    edge = Arrival()
    edge.read(edge.handover([queued(1)], expiry_ns=0))
    assert edge.member.take_moves() == [Move(CAR, "north/there", "north/here", MoveOutcome.REFUSED, "SESSION_EXPIRED", 1, 0)]


def test_a_client_admitted_without_its_session_is_a_move_given_up() -> None:
    edge = Arrival()
    edge.pass_s(5)
    (move,) = edge.member.take_moves()
    assert (move.outcome, move.why, move.messages) == (MoveOutcome.GIVEN_UP, "no session came within 5 s", 0)
    assert move.duration_ns == 5 * SECOND_NS


def test_a_waiting_client_claimed_by_another_edge_is_a_move_given_up() -> None:
    edge = Arrival()
    edge.claim(THERE, edge.epoch + 1)
    (move,) = edge.member.take_moves()
    assert (move.outcome, move.why) == (MoveOutcome.GIVEN_UP, "claimed by north/there")


def test_a_session_that_leaves_before_it_has_caught_up_is_an_interrupted_move() -> None:
    edge = Arrival(end=9)  # an earlier process of this edge has written more
    edge.read(edge.handover([queued(1)]))
    assert edge.member.take_moves() == []
    edge.claim(THERE, edge.epoch + 1)
    (move,) = edge.member.take_moves()
    assert (move.from_edge, move.outcome, move.why) == ("north/there", MoveOutcome.INTERRUPTED, "claimed by north/there")
    assert move.messages == 1


def test_an_endpoint_without_an_earlier_edge_leaves_no_line() -> None:
    edge = Arrival()
    edge.read(Handover(CAR, edge.epoch, THERE, HERE, 1, has_session=False))
    assert edge.member.take_moves() == []


def test_lines_beyond_the_limit_of_a_tick_are_counted() -> None:
    state = Arrival().member.state
    for _ in range(MOVES_MAX + 2):
        state.note_move(Residency(CAR, Epoch(1)), MoveOutcome.GIVEN_UP, "a flood")
    assert len(state.moves) == MOVES_MAX
    assert state.counts["handovers_not_logged"] == 2
