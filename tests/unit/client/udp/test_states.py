"""Every input in every phase: each pair leads to a defined phase, raises nothing, and sends few datagrams."""

from collections.abc import Callable

import pytest

from milepost.client.udp.session import UdpPhase
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import parse_query
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import (
    CloseCause,
    Init,
    MessageName,
    PublishDatagram,
    ReceivedDatagram,
    SessionToken,
    SubscriptionName,
    refusal_of,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.wire.datagrams import encode
from unit.client.udp.scripted_edge import CAR, SessionHarness, message, report_at

ICE = Subscription(CAR, parse_query("ice"), id=SubscriptionId(5))
FOREIGN = message(1, source="car-2")

Input = Callable[[SessionHarness], object]


def idle(harness: SessionHarness) -> None:
    """Do nothing."""


def opening(harness: SessionHarness) -> None:
    harness.is_disconnected = True
    harness.start()


def is_open(harness: SessionHarness) -> None:
    harness.start()
    harness.run_with_heartbeats(6)


def renewing(harness: SessionHarness) -> None:
    is_open(harness)
    harness.run_with_heartbeats(33)
    harness.is_disconnected = True
    harness.run_with_heartbeats(3)


def away(harness: SessionHarness) -> None:
    is_open(harness)
    harness.is_disconnected = True
    harness.wait(12)


def closed(harness: SessionHarness) -> None:
    is_open(harness)
    harness.session.close(harness.now)
    harness.exchange()


PHASES: dict[UdpPhase, Callable[[SessionHarness], None]] = {
    UdpPhase.IDLE: idle,
    UdpPhase.OPENING: opening,
    UdpPhase.OPEN: is_open,
    UdpPhase.RENEWING: renewing,
    UdpPhase.RECONNECTING: away,
    UdpPhase.CLOSED: closed,
}


def receive(make: Callable[[SessionHarness], bytes]) -> Input:
    """A datagram of the newest session, if there is one."""

    def give(harness: SessionHarness) -> None:
        data = make(harness) if harness.edge.sessions else b"\x04" + bytes(40)
        harness.session.on_datagram(data, harness.now)

    return give


def raw(data: bytes) -> Input:
    """Return arbitrary bytes."""
    return lambda harness: harness.session.on_datagram(data, harness.now)


def acknowledged(harness: SessionHarness) -> None:
    """Answer the last INIT, whether or not it is still pending."""
    later = Instant(harness.now + 4 * SECOND_NS)  # by then INIT is sent again
    harness.session.on_tick(later)
    for data in harness.session.take_outgoing():
        for answer in harness.edge.on_datagram(data, later):
            harness.session.on_datagram(answer, later)


def cookie(harness: SessionHarness) -> None:
    harness.edge.requires_cookie = True
    if harness.edge.is_sealed:  # else there are none
        acknowledged(harness)


INPUTS: dict[str, Input] = {
    "start": lambda harness: harness.session.start(report_at(harness.now), harness.now),
    "report": lambda harness: harness.session.report(report_at(harness.now), harness.now),
    "publish": lambda harness: harness.session.publish(message(7, now=harness.now), harness.now),
    "publish unreliable": lambda harness: harness.session.publish(message(8, reliable=False, now=harness.now), harness.now),
    "withdraw": lambda harness: harness.session.withdraw(MessageName(CAR, message(7).id)),
    "subscribe": lambda harness: harness.session.subscribe(ICE, harness.now),
    "unsubscribe": lambda harness: harness.session.unsubscribe(SubscriptionId(5), harness.now),
    "took": lambda harness: harness.session.acknowledge(MessageName(FOREIGN.source, FOREIGN.id)),
    "close": lambda harness: harness.session.close(harness.now),
    "tick": lambda harness: harness.session.on_tick(harness.now),
    "tick too early": lambda harness: harness.session.on_tick(Instant(harness.now - 60 * SECOND_NS)),
    "tick much later": lambda harness: harness.session.on_tick(Instant(harness.now + 3_600 * SECOND_NS)),
    "nothing": raw(b""),
    "noise": raw(bytes(range(200))),
    **{f"kind {kind} alone": raw(bytes([kind])) for kind in range(9)},
    **{f"kind {kind} and zeros": raw(bytes([kind, *bytes(99)])) for kind in range(9)},
    "init": lambda harness: harness.session.on_datagram(encode(Init(report_at(harness.now))), harness.now),
    "acknowledge": acknowledged,
    "cookie": cookie,
    "heartbeat": receive(lambda harness: harness.edge.heartbeat()),
    "message": receive(lambda harness: harness.edge.datagram_of(PublishDatagram(FOREIGN, matches=(SubscriptionId(5),)))),
    "received": receive(lambda harness: harness.edge.datagram_of(ReceivedDatagram(MessageName(CAR, message(7).id)))),
    "received a subscription": receive(
        lambda harness: harness.edge.datagram_of(ReceivedDatagram(SubscriptionName(CAR, SubscriptionId(5))))
    ),
    "refusal": receive(lambda harness: harness.edge.datagram_of(refusal_of(Refused(Reason.CLOCK_AHEAD)))),
    "refusal of a message": receive(
        lambda harness: harness.edge.datagram_of(refusal_of(Refused(Reason.EXPIRED), MessageName(CAR, message(7).id)))
    ),
    "session unknown": receive(lambda harness: harness.edge.datagram_of(refusal_of(Refused(Reason.SESSION_UNKNOWN)))),
    "refusal of a stranger": lambda harness: harness.session.on_datagram(
        encode(refusal_of(Refused(Reason.NOT_ALLOWED), session=SessionToken(9))), harness.now
    ),
    "reset": receive(lambda harness: harness.edge.reset()),
    "wrong reset": receive(lambda harness: harness.edge.reset(is_valid=False)),
    **{f"close {cause.name}": receive(lambda harness, cause=cause: harness.edge.close_datagram(cause)) for cause in CloseCause},  # type: ignore[misc]
}

MOVES: dict[str, dict[UdpPhase, UdpPhase]] = {
    "start": {UdpPhase.IDLE: UdpPhase.OPENING},
    "close": dict.fromkeys(UdpPhase, UdpPhase.CLOSED),
    "acknowledge": {UdpPhase.OPENING: UdpPhase.OPEN, UdpPhase.RENEWING: UdpPhase.OPEN, UdpPhase.RECONNECTING: UdpPhase.OPEN},
    "tick much later": {UdpPhase.OPEN: UdpPhase.RECONNECTING, UdpPhase.RENEWING: UdpPhase.RECONNECTING},
    "reset": {UdpPhase.OPEN: UdpPhase.RECONNECTING, UdpPhase.RENEWING: UdpPhase.RECONNECTING},
    "session unknown": {UdpPhase.OPEN: UdpPhase.RECONNECTING, UdpPhase.RENEWING: UdpPhase.RECONNECTING},
    **{
        f"close {cause.name}": {UdpPhase.OPEN: UdpPhase.RECONNECTING, UdpPhase.RENEWING: UdpPhase.RECONNECTING}
        for cause in (CloseCause.DONE, CloseCause.SILENT, CloseCause.MOVED, CloseCause.STOPPING)
    },
    **{
        f"close {cause.name}": {UdpPhase.OPEN: UdpPhase.CLOSED, UdpPhase.RENEWING: UdpPhase.CLOSED}
        for cause in (CloseCause.EXPELLED, CloseCause.REPLACED)
    },
}
"""The next phase after an input; inputs that are not listed change no phase."""


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("phase", PHASES)
def test_each_input_in_each_phase_follows_the_transition_table(phase: UdpPhase, name: str, is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed)
    if phase is UdpPhase.RENEWING and not is_sealed:
        harness.edge.keys_ns = 60 * SECOND_NS  # an edge without encryption sends no key lifetime
    PHASES[phase](harness)
    assert harness.session.phase is phase
    INPUTS[name](harness)
    assert harness.session.phase is MOVES.get(name, {}).get(phase, phase)
    assert len(harness.session.take_outgoing()) <= 2
    assert len(harness.session.take_events()) <= 3
    harness.session.on_tick(Instant(harness.now + SECOND_NS))
