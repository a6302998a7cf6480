"""Sessions that come to an edge at which nobody waits for them."""

from edge_in_memory import EdgeInMemory
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS
from milepost.model.sites import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    Claim,
    EdgeRef,
    Epoch,
    Handover,
    LoggedRecord,
    claim_key,
)
from milepost.wire.records import to_record

CAR = EndpointId("car")
MINE, OTHER = EdgeRef("north", "mine"), EdgeRef("north", "other")


def test_an_edge_that_has_forgotten_why_it_gave_a_claim_up_says_it_again_when_the_session_comes() -> None:
    edge = EdgeInMemory()
    member = SiteMember(edge.broker, MINE, SiteLimits())
    member.begin_at(0, 1)
    claim = Claim(CAR, MINE, Epoch(5))
    handover = Handover(CAR, claim.epoch, OTHER, MINE, 1, expiry_ns=60 * SECOND_NS)
    member.on_records(VEHICLE_INFO, [LoggedRecord(0, claim_key(CAR, MINE), to_record(claim), edge.now)], edge.now)
    member.on_records(CROSS_HUB, [LoggedRecord(0, str(MINE), to_record(handover), edge.now)], edge.now)
    for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
        member.caught_up(topic, edge.now)
    assert edge.broker.sessions.maybe(CAR) is not None
    said = {one.key: one.value for one in member.state.outbox.take() if one.topic == VEHICLE_INFO}
    assert said == {claim_key(CAR, MINE): to_record(claim)}
