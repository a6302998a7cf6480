"""All phases times all inputs: each pair ends in a defined phase, raises nothing, and says little."""

from collections.abc import Callable

import pytest

from milepost.client.udp.session import Phase
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import parse_query
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import CloseCause, Init, MessageName, Publish, Received, SessionToken, SubscriptionName, refusal_of
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.wire.datagrams import encode
from unit.client.udp.scripted_edge import CAR, Talk, message, report_at

ICE = Subscription(CAR, parse_query("ice"), id=SubscriptionId(5))
FOREIGN = message(1, source="car-2")

Input = Callable[[Talk], object]


def idle(talk: Talk) -> None:
    """Nothing was done."""


def opening(talk: Talk) -> None:
    talk.is_cut = True
    talk.start()


def is_open(talk: Talk) -> None:
    talk.start()
    talk.live(6)


def renewing(talk: Talk) -> None:
    is_open(talk)
    talk.live(33)
    talk.is_cut = True
    talk.live(3)


def away(talk: Talk) -> None:
    is_open(talk)
    talk.is_cut = True
    talk.wait(12)


def closed(talk: Talk) -> None:
    is_open(talk)
    talk.session.close(talk.now)
    talk.pass_on()


PHASES: dict[Phase, Callable[[Talk], None]] = {
    Phase.IDLE: idle,
    Phase.OPENING: opening,
    Phase.OPEN: is_open,
    Phase.RENEWING: renewing,
    Phase.AWAY: away,
    Phase.CLOSED: closed,
}


def heard(make: Callable[[Talk], bytes]) -> Input:
    """A datagram of the newest session, if there is one."""

    def give(talk: Talk) -> None:
        data = make(talk) if talk.edge.sessions else b"\x04" + bytes(40)
        talk.session.on_datagram(data, talk.now)

    return give


def raw(data: bytes) -> Input:
    """Bytes from nobody in particular."""
    return lambda talk: talk.session.on_datagram(data, talk.now)


def acknowledged(talk: Talk) -> None:
    """The answer to the last INIT, whatever became of it."""
    later = Instant(talk.now + 4 * SECOND_NS)  # by then INIT is sent again
    talk.session.on_tick(later)
    for data in talk.session.take_outgoing():
        for answer in talk.edge.on_datagram(data, later):
            talk.session.on_datagram(answer, later)


def cookie(talk: Talk) -> None:
    talk.edge.asks_for_cookie = True
    if talk.edge.is_sealed:  # else there are none
        acknowledged(talk)


INPUTS: dict[str, Input] = {
    "start": lambda talk: talk.session.start(report_at(talk.now), talk.now),
    "report": lambda talk: talk.session.report(report_at(talk.now), talk.now),
    "publish": lambda talk: talk.session.publish(message(7, now=talk.now), talk.now),
    "publish unreliable": lambda talk: talk.session.publish(message(8, reliable=False, now=talk.now), talk.now),
    "withdraw": lambda talk: talk.session.withdraw(MessageName(CAR, message(7).id)),
    "subscribe": lambda talk: talk.session.subscribe(ICE, talk.now),
    "unsubscribe": lambda talk: talk.session.unsubscribe(SubscriptionId(5), talk.now),
    "took": lambda talk: talk.session.acknowledge(MessageName(FOREIGN.source, FOREIGN.id)),
    "close": lambda talk: talk.session.close(talk.now),
    "tick": lambda talk: talk.session.on_tick(talk.now),
    "tick too early": lambda talk: talk.session.on_tick(Instant(talk.now - 60 * SECOND_NS)),
    "tick much later": lambda talk: talk.session.on_tick(Instant(talk.now + 3_600 * SECOND_NS)),
    "nothing": raw(b""),
    "noise": raw(bytes(range(200))),
    **{f"kind {kind} alone": raw(bytes([kind])) for kind in range(9)},
    **{f"kind {kind} and zeros": raw(bytes([kind, *bytes(99)])) for kind in range(9)},
    "init": lambda talk: talk.session.on_datagram(encode(Init(report_at(talk.now))), talk.now),
    "acknowledge": acknowledged,
    "cookie": cookie,
    "heartbeat": heard(lambda talk: talk.edge.heartbeat()),
    "message": heard(lambda talk: talk.edge.say(Publish(FOREIGN, matches=(SubscriptionId(5),)))),
    "received": heard(lambda talk: talk.edge.say(Received(MessageName(CAR, message(7).id)))),
    "received a subscription": heard(lambda talk: talk.edge.say(Received(SubscriptionName(CAR, SubscriptionId(5))))),
    "refusal": heard(lambda talk: talk.edge.say(refusal_of(Refused(Reason.CLOCK_AHEAD)))),
    "refusal of a message": heard(
        lambda talk: talk.edge.say(refusal_of(Refused(Reason.EXPIRED), MessageName(CAR, message(7).id)))
    ),
    "session unknown": heard(lambda talk: talk.edge.say(refusal_of(Refused(Reason.SESSION_UNKNOWN)))),
    "refusal of a stranger": lambda talk: talk.session.on_datagram(
        encode(refusal_of(Refused(Reason.NOT_ALLOWED), session=SessionToken(9))), talk.now
    ),
    "reset": heard(lambda talk: talk.edge.reset()),
    "wrong reset": heard(lambda talk: talk.edge.reset(is_right=False)),
    **{f"close {cause.name}": heard(lambda talk, cause=cause: talk.edge.closing(cause)) for cause in CloseCause},  # type: ignore[misc]
}

MOVES: dict[str, dict[Phase, Phase]] = {
    "start": {Phase.IDLE: Phase.OPENING},
    "close": dict.fromkeys(Phase, Phase.CLOSED),
    "acknowledge": {Phase.OPENING: Phase.OPEN, Phase.RENEWING: Phase.OPEN, Phase.AWAY: Phase.OPEN},
    "tick much later": {Phase.OPEN: Phase.AWAY, Phase.RENEWING: Phase.AWAY},
    "reset": {Phase.OPEN: Phase.AWAY, Phase.RENEWING: Phase.AWAY},
    "session unknown": {Phase.OPEN: Phase.AWAY, Phase.RENEWING: Phase.AWAY},
    **{
        f"close {cause.name}": {Phase.OPEN: Phase.AWAY, Phase.RENEWING: Phase.AWAY}
        for cause in (CloseCause.DONE, CloseCause.SILENT, CloseCause.MOVED, CloseCause.STOPPING)
    },
    **{
        f"close {cause.name}": {Phase.OPEN: Phase.CLOSED, Phase.RENEWING: Phase.CLOSED}
        for cause in (CloseCause.EXPELLED, CloseCause.REPLACED)
    },
}
"""Where an input leads; what is not here changes no phase."""


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("phase", PHASES)
def test_each_input_in_each_phase_leads_where_the_table_says(phase: Phase, name: str, is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed)
    if phase is Phase.RENEWING and not is_sealed:
        talk.edge.keys_ns = 60 * SECOND_NS  # an edge that seals nothing gives no keys; a session must stand it
    PHASES[phase](talk)
    assert talk.session.phase is phase
    INPUTS[name](talk)
    assert talk.session.phase is MOVES.get(name, {}).get(phase, phase)
    assert len(talk.session.take_outgoing()) <= 2
    assert len(talk.session.take_events()) <= 3
    talk.session.on_tick(Instant(talk.now + SECOND_NS))
