"""What must hold of a UDP door between two turns, whatever has happened."""

from milepost.broker.session import Session
from milepost.listeners.udp.connection import UdpConnection
from milepost.model.areas import Box
from udp_edge_in_memory import UdpEdge

EVERYWHERE = Box(-90.0, -180.0, 90.0, 180.0)


def check_door(edge: UdpEdge) -> None:
    """Tenants, seats, sessions, the map and all that waits agree with each other."""
    links = edge.udp.session_table._links
    assert all(key == link.key for key, link in links.items())
    current = [link for link in links.values() if link.heir is None]
    _check_seats(edge, current)
    _check_former(edge, links)
    _check_pending(edge, links)
    _check_places(edge)
    for session in edge.broker.sessions:
        if isinstance(session.link, UdpConnection):
            assert session.link in current, f"{session.name} has a link that nobody can speak under"
            _check_waiting(edge, session)
    assert set(edge.udp._wanting) <= set(current)
    assert not edge.udp._confirmations
    assert not edge.udp._expelled


def _check_seats(edge: UdpEdge, current: list[UdpConnection]) -> None:
    columns = edge.udp._columns
    assert sorted(columns.is_taken.nonzero()[0].tolist()) == sorted(link.number for link in current)
    assert len(edge.udp.session_table) == len(current)
    for link in current:
        assert link.session.link is link, f"{link.session.name} is served under another link"
        assert edge.broker.sessions[link.number] is link.session
        assert int(columns.tokens[link.number]) == link.token


def _check_former(edge: UdpEdge, links: dict[bytes, UdpConnection]) -> None:
    former = edge.udp.session_table._former
    assert set(former) == {link for link in links.values() if link.heir is not None}
    for link in former:
        assert link.heir is not None
        assert links.get(link.heir.key) is link.heir
        assert link.heir.heir is None
        assert link.heir.session is link.session
    assert all(due > edge.beat - edge.ticked_ago for due in former.values()), "a former token is taken for too long"


def _check_pending(edge: UdpEdge, links: dict[bytes, UdpConnection]) -> None:
    opening = edge.udp._opening
    assert len(opening.pending) == len(opening._by_mark) <= edge.udp_settings.pending_max
    assert not set(opening.pending) & set(links)
    assert all(one.due > edge.beat - edge.ticked_ago for one in opening.pending.values()), "somebody is pending for too long"


def _check_places(edge: UdpEdge) -> None:
    broker = edge.broker
    placed = set(broker.matcher.who_is_in(EVERYWHERE).tolist())
    known = {session.number for session in broker.sessions if broker.watch.tracks.is_known(session.number)}
    assert placed == known, "the map shows others than those who are here"


def _check_waiting(edge: UdpEdge, session: Session) -> None:
    assert len(session.in_flight) <= session.window
    is_stuck = session.waiting is not None and not session.in_flight and session.link not in edge.udp._wanting
    assert not is_stuck, f"what waits for {session.name} waits for ever"
