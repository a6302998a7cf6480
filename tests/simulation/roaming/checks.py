"""Checks of the idle system after recovery: nothing is left over, and announcements, claims and sessions agree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from milepost.eventlog.memory import MemoryStore
from milepost.model.site_records import ANY_EDGE, SUBSCRIPTION_INFO, VEHICLE_INFO, edge_ref, interest_key

if TYPE_CHECKING:
    from simulation.roaming.nodes import EdgeNode
    from simulation.roaming.world import World


def check_idle(world: "World") -> list[str]:
    """Return the faults of edges and logs."""
    return [fault for node in world.edges for fault in _check_node(world, node)] + list(_check_sites(world))


def _check_node(world: "World", node: "EdgeNode") -> Iterator[str]:
    process = node.process
    if process is None:
        yield f"{node.ref} is down"
        return
    roaming, state = process.member.roaming, process.member.state
    if not state.is_ready:
        yield f"{node.ref} has not read the registry"
    left = {
        "leaving": list(roaming.outgoing.leaving),
        "catching up": list(roaming.catch_up._residencies),
        "waiting": list(roaming._waiting),
        "owed": list(roaming.outgoing.owed_replies),
        "unfinished": list(roaming._partial_handovers),
        "read backs": list(roaming.handovers.read_backs),
        "expected": list(process.member.prediction._expected),
        "outbox": list(state.outbox._spool),
        "arriving": list(process.listener.context.awaiting_session),
    }
    for what, entries in left.items():
        if entries:
            yield f"{node.ref} has left over: {what} {entries}"
    sessions = {session.name for session in process.broker.sessions}
    if set(roaming.residencies) != sessions:
        yield f"{node.ref} has residencies {sorted(roaming.residencies)} and sessions {sorted(sessions)}"
    for session in process.broker.sessions:
        for name, subscription in session.subscriptions.items():
            if subscription.row < 0:
                yield f"{node.ref}: {session.name}'s {name} is still suspended"
    stored = node.disk.load()
    durable_sessions = {session.name for session in process.broker.sessions if session.is_durable}
    if set(stored.residencies) != durable_sessions:
        yield f"{node.ref} stores residencies {sorted(stored.residencies)} for sessions {sorted(durable_sessions)}"
    if stored.outbox:
        yield f"{node.ref} still stores an outbox {sorted(stored.outbox)}"
    yield from _check_interest(world, node)


def table(store: MemoryStore, topic: str) -> dict[str, bytes]:
    """Return the last value of each key of a compacted topic."""
    records = store._topics[topic].records
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def _expected_keys(world: "World", site: str) -> set[str]:
    found = set()
    for node in world.edges:
        if node.ref.site == site and node.process is not None:
            for session in node.process.broker.sessions:
                found |= {interest_key(node.ref, session.name, name) for name in session.subscriptions}
    return found


def _check_interest(world: "World", node: "EdgeNode") -> Iterator[str]:
    assert node.process is not None
    known = {key for key in node.process.member.state.interest._rows if not key.startswith("@@")}
    others = {key for key in _expected_keys(world, node.ref.site) if not key.startswith(f"{node.ref}\n")}
    if known != others:
        yield f"{node.ref} counts as interest {sorted(known - others)} and not {sorted(others - known)}"


def _check_sites(world: "World") -> Iterator[str]:
    holders: dict[str, list[str]] = {}
    for node in world.edges:
        if node.process is not None:
            for session in node.process.broker.sessions:
                holders.setdefault(session.name, []).append(str(node.ref))
    for name, entries in holders.items():
        if len(entries) > 1:
            yield f"{name} is held by {entries}"
    for site, store in world.stores.items():
        announced = {key for key in table(store, SUBSCRIPTION_INFO) if not key.startswith("@")}
        expected = _expected_keys(world, site)
        if announced != expected:
            yield f"{site} announces {sorted(announced - expected)} and not {sorted(expected - announced)}"
        claims = {tuple(key.rsplit("\n", 1)) for key in table(store, VEHICLE_INFO) if not key.startswith("@")}
        held = {(name, ref) for name, entries in holders.items() for ref in entries if edge_ref(ref).site == site}
        if claims != held:
            yield f"{site} has claims {sorted(claims - held)} and not {sorted(held - claims)}"
    yield from _check_between_sites(world)


def _check_between_sites(world: "World") -> Iterator[str]:
    if len(world.stores) < 2 or not world.hubs:
        return
    for about in world.stores:
        subscriptions = {key.partition("\n")[2].partition("\n")[2] for key in _expected_keys(world, about)}
        for at, store in world.stores.items():
            if at != about:
                entries = {key for key in table(store, SUBSCRIPTION_INFO) if key.startswith(f"@@{about}\n") and "\n@" not in key}
                if len(entries) != len(subscriptions):
                    yield f"{at} has {len(entries)} entries about {about}, which has {len(subscriptions)}: {ANY_EDGE}"
