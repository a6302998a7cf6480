"""The first moments of a session."""

from live.udp.edges import UdpEdge
from live.udp.talkers import Talker
from milepost.client.events import Done, Lost
from milepost.wire.sealed import Kind


def test_the_first_words_of_a_session_may_all_come_at_once(edge: UdpEdge, name: str) -> None:
    """The edge finds in one batch the report that opens the session and what was said after it."""
    with Talker(edge, name) as talker:
        talker.start()
        for number in range(5):
            talker.publish(name, b"%d" % number, reliable=True)
        with edge.paused():
            talker.send()
        talker.wait(lambda: sum(isinstance(one, Done) for one in talker.events) == 5, answers=False)
        assert not any(isinstance(one, Lost) for one in talker.events)
        assert Kind.RESET not in {data[0] for data in talker.came}
