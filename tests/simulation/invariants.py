"""Invariants of a UDP listener between two ticks."""

from milepost.broker.session import Session
from milepost.listeners.udp.connection import UdpConnection
from milepost.model.areas import Box
from udp_edge_in_memory import UdpEdge

EVERYWHERE = Box(-90.0, -180.0, 90.0, 180.0)


def check_udp_listener(edge: UdpEdge) -> None:
    """Check that connections, rows, sessions, positions and queues agree with each other."""
    connections = edge.udp.session_table._connections
    assert all(key == connection.key for key, connection in connections.items())
    current = [connection for connection in connections.values() if connection.successor is None]
    _check_rows(edge, current)
    _check_previous(edge, connections)
    _check_pending(edge, connections)
    _check_places(edge)
    for session in edge.broker.sessions:
        if isinstance(session.connection, UdpConnection):
            assert session.connection in current, f"{session.name} has a connection that is not current"
            _check_waiting(edge, session)
    assert set(edge.udp._drainable) <= set(current)
    assert not edge.udp._confirmations
    assert not edge.udp._expelled


def _check_rows(edge: UdpEdge, current: list[UdpConnection]) -> None:
    columns = edge.udp._columns
    assert sorted(columns.is_used.nonzero()[0].tolist()) == sorted(connection.number for connection in current)
    assert len(edge.udp.session_table) == len(current)
    for connection in current:
        assert connection.session.connection is connection, f"{connection.session.name} has another connection"
        assert edge.broker.sessions[connection.number] is connection.session
        assert int(columns.tokens[connection.number]) == connection.token


def _check_previous(edge: UdpEdge, connections: dict[bytes, UdpConnection]) -> None:
    previous = edge.udp.session_table._previous
    assert set(previous) == {connection for connection in connections.values() if connection.successor is not None}
    for connection in previous:
        assert connection.successor is not None
        assert connections.get(connection.successor.key) is connection.successor
        assert connection.successor.successor is None
        assert connection.successor.session is connection.session
    assert all(due > edge.monotonic_now - edge.since_timer_ns for due in previous.values()), (
        "a previous token is accepted for too long"
    )


def _check_pending(edge: UdpEdge, connections: dict[bytes, UdpConnection]) -> None:
    opening = edge.udp._pending_sessions
    assert len(opening.pending) == len(opening._by_fingerprint) <= edge.udp_settings.pending_max
    assert not set(opening.pending) & set(connections)
    assert all(one.expires_at > edge.monotonic_now - edge.since_timer_ns for one in opening.pending.values()), (
        "a session is pending for too long"
    )


def _check_places(edge: UdpEdge) -> None:
    broker = edge.broker
    placed = set(broker.matcher.find_inside(EVERYWHERE).tolist())
    known = {session.number for session in broker.sessions if broker.presence.last_reports.is_known(session.number)}
    assert placed == known, "the matcher has other endpoints than the sessions with a known position"


def _check_waiting(edge: UdpEdge, session: Session) -> None:
    assert len(session.in_flight) <= session.window
    is_stuck = session.queue is not None and not session.in_flight and session.connection not in edge.udp._drainable
    assert not is_stuck, f"the queue of {session.name} is never sent"
