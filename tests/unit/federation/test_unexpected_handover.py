"""Sessions that arrive at an edge where no client waits for them."""

from edge_in_memory import EdgeInMemory
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    EndpointClaim,
    Epoch,
    Handover,
    LoggedRecord,
    claim_key,
)
from milepost.wire.records import to_record

CAR = EndpointId("car")
MINE, OTHER = EdgeRef("north", "mine"), EdgeRef("north", "other")


def test_an_edge_that_lost_its_claim_record_claims_again_when_a_session_arrives() -> None:
    edge = EdgeInMemory()
    member = SiteMember(edge.broker, MINE, SiteLimits())
    member.begin_at(0, 1)
    claim = EndpointClaim(CAR, MINE, Epoch(5))
    handover = Handover(CAR, claim.epoch, OTHER, MINE, 1, expiry_ns=60 * SECOND_NS)
    member.on_records(VEHICLE_INFO, [LoggedRecord(0, claim_key(CAR, MINE), to_record(claim), edge.now)], edge.now)
    member.on_records(CROSS_HUB, [LoggedRecord(0, str(MINE), to_record(handover), edge.now)], edge.now)
    for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
        member.caught_up(topic, edge.now)
    assert edge.broker.sessions.find(CAR) is not None
    announced = {one.key: one.value for one in member.state.outbox.take_batch() if one.topic == VEHICLE_INFO}
    assert announced == {claim_key(CAR, MINE): to_record(claim)}
