"""Multicast reaches everyone in a cell: only a message that everyone may read is multicast."""

import pytest

from milepost.broker.admission import AdmissionRules
from milepost.listeners.udp.connection import UdpConnection
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.multicast_cells import MulticastGrid
from milepost.vetting import AccessAction, AccessList, AccessRule
from udp_edge_in_memory import HOME, UdpEdge

CELLS = MulticastGrid("239.192.0.0", 256, 4243, 1.0)


@pytest.mark.parametrize(("denied_client", "is_multicast"), [("nobody-else", False), (None, True)])
def test_a_message_that_someone_may_not_read_is_not_multicast(denied_client: str | None, is_multicast: bool) -> None:
    denials = [AccessRule(False, AccessAction.SUBSCRIBE, "t", client=denied_client)] if denied_client else []
    rules = [AccessRule(True, AccessAction.SEND, "#"), *denials]
    edge = UdpEdge(is_sealed=False, udp=UdpSettings(cells=CELLS), rules=AdmissionRules(AccessList(rules)))
    receivers = [edge.vehicle(f"car-{number}") for number in range(5)]
    for receiver in receivers:
        connection = edge.session(receiver.name).connection
        assert isinstance(connection, UdpConnection)
        connection.receives_multicast = True
    sender = edge.vehicle("sender")
    sender.publish(sender.message("t", b"x", to=ToArea(Circle(HOME, 500.0))))
    edge.run_ticks()
    assert edge.broker.counts.refused == {}
    assert [bool(receiver.messages()) for receiver in receivers] == [not is_multicast] * len(receivers)
