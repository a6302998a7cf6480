"""The first datagrams of a session."""

from live.udp.edges import UdpEdge
from live.udp.scripted_endpoints import ScriptedEndpoint
from milepost.client.events import Done, Lost
from milepost.wire.sealed import SealedType


def test_the_first_datagrams_of_a_session_may_arrive_in_one_batch(edge: UdpEdge, name: str) -> None:
    """The edge finds in one batch the report that opens the session and the messages after it."""
    with ScriptedEndpoint(edge, name) as endpoint:
        endpoint.start()
        for number in range(5):
            endpoint.publish(name, b"%d" % number, reliable=True)
        with edge.paused():
            endpoint.send()
        endpoint.wait(lambda: sum(isinstance(one, Done) for one in endpoint.events) == 5, answers=False)
        assert not any(isinstance(one, Lost) for one in endpoint.events)
        assert SealedType.RESET not in {data[0] for data in endpoint.received}
