"""What must hold of a UDP door between two turns, whatever has happened."""

from milepost.doors.udp.link import UdpLink
from milepost.edge.sessions import Session
from milepost.model.areas import Box
from udp_in_memory import UdpEdge

EVERYWHERE = Box(-90.0, -180.0, 90.0, 180.0)


def check_door(edge: UdpEdge) -> None:
    """Tenants, seats, sessions, the map and all that waits agree with each other."""
    links = edge.udp.tenants._links
    assert all(key == link.key for key, link in links.items())
    current = [link for link in links.values() if link.heir is None]
    _check_seats(edge, current)
    _check_former(edge, links)
    _check_pending(edge, links)
    _check_places(edge)
    for session in edge.corridor.sessions:
        if isinstance(session.link, UdpLink):
            assert session.link in current, f"{session.name} has a link that nobody can speak under"
            _check_waiting(edge, session)
    assert set(edge.udp._wanting) <= set(current)
    assert not edge.udp._confirmations
    assert not edge.udp._expelled


def _check_seats(edge: UdpEdge, current: list[UdpLink]) -> None:
    seats = edge.udp._seats
    assert sorted(seats.is_taken.nonzero()[0].tolist()) == sorted(link.number for link in current)
    assert len(edge.udp.tenants) == len(current)
    for link in current:
        assert link.session.link is link, f"{link.session.name} is served under another link"
        assert edge.corridor.sessions[link.number] is link.session
        assert int(seats.tokens[link.number]) == link.token


def _check_former(edge: UdpEdge, links: dict[bytes, UdpLink]) -> None:
    former = edge.udp.tenants._former
    assert set(former) == {link for link in links.values() if link.heir is not None}
    for link in former:
        assert link.heir is not None
        assert links.get(link.heir.key) is link.heir
        assert link.heir.heir is None
        assert link.heir.session is link.session
    assert all(due > edge.beat - edge.ticked_ago for due in former.values()), "a former token is taken for too long"


def _check_pending(edge: UdpEdge, links: dict[bytes, UdpLink]) -> None:
    opening = edge.udp._opening
    assert len(opening.pending) == len(opening._by_mark) <= edge.udp_settings.pending_max
    assert not set(opening.pending) & set(links)
    assert all(one.due > edge.beat - edge.ticked_ago for one in opening.pending.values()), "somebody is pending for too long"


def _check_places(edge: UdpEdge) -> None:
    corridor = edge.corridor
    placed = set(corridor.matcher.who_is_in(EVERYWHERE).tolist())
    known = {session.number for session in corridor.sessions if corridor.watch.tracks.is_known(session.number)}
    assert placed == known, "the map shows others than those who are here"


def _check_waiting(edge: UdpEdge, session: Session) -> None:
    assert len(session.in_flight) <= session.window
    is_stuck = session.waiting is not None and not session.in_flight and session.link not in edge.udp._wanting
    assert not is_stuck, f"what waits for {session.name} waits for ever"
