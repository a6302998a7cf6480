"""Departures: what is left to do for endpoints that were handed over, and for those who handed them over to this edge.

    handed over ─▶ asked for here ─▶ `Taken` ─▶ said to be wanted no more ─▶ that was read: asked for no more
    came here   ─▶ what it wants was said ─▶ `Taken` to who handed it over

What must hold:
- what an endpoint asks for is asked for here until the edge that has it says that it asks for it itself, and that was heard;
- who hands over hears in the end that it was taken, whatever becomes of the session: what is owed is kept, apart from sessions;
- a claim stands until nothing of the endpoint is on its way from here: whoever waits for its session knows that one comes.
"""

from typing import NamedTuple

from milepost.edge.site.forwarding import ON_THE_MOVE
from milepost.edge.site.handing import held_of
from milepost.edge.site.state import SiteState
from milepost.edge.site.stays import Leaving, leaving_from_bytes, leaving_to_bytes
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.sites import (
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    Claim,
    EdgeRef,
    Epoch,
    Handover,
    Held,
    Taken,
    claim_key,
    edge_ref,
    wanted_key,
)


class Debt(NamedTuple):
    """Who handed over an endpoint, to which claim, under which number."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    number: int


class Departures:
    """The endpoints that left, and whom this edge owes an answer."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.leaving: dict[tuple[EndpointId, Epoch], Leaving] = {}
        self.debts: dict[Debt, int] = {}
        """With the turn of what was said (`Outbox.last_said`) after which they can be paid."""
        self._ending: dict[str, list[str]] = {}
        """What is said to be wanted no more, and is until that was read: by then all others that want it were heard."""

    def restore(self, key: str, data: bytes) -> None:
        """One of them, as an earlier process kept it."""
        endpoint, epoch, *rest = key.split("\n")
        if rest:
            sender, number = rest
            self.debts[Debt(EndpointId(endpoint), Epoch(int(epoch)), edge_ref(sender), int(number))] = 0
            return
        leaving = leaving_from_bytes(EndpointId(endpoint), data)
        self.leaving[leaving.endpoint, leaving.epoch] = leaving
        self._ask_for(leaving)

    def begin(self) -> None:
        """The register is read, and what is wanted here is said again where the log does not have it."""
        self.debts = dict.fromkeys(self.debts, self._state.outbox.last_said)

    def settle(self, now: Instant) -> None:
        """Who can hear that its handover was taken does."""
        outbox = self._state.outbox
        if not self.debts or not self._state.is_ready:
            return
        for debt in [one for one, after in self.debts.items() if after <= outbox.said_up_to]:
            del self.debts[debt]
            self._state.corridor.changes.stays[_debt_key(debt)] = None
            self._say_taken(debt.endpoint, debt.epoch, debt.sender, self._held_of(debt.endpoint), now)

    def has_left(self, endpoint: EndpointId) -> bool:
        """Whether something of an endpoint is on its way from here, and is not taken yet."""
        return any(one.endpoint == endpoint for one in self.leaving.values())

    def leave(self, leaving: Leaving) -> None:
        """A session was handed over, or on."""
        before = self.leaving.get((leaving.endpoint, leaving.epoch))
        if before is not None:
            names = {held.name for held in leaving.subscriptions}
            leaving.subscriptions += tuple(held for held in before.subscriptions if held.name not in names)
            leaving.relayed += before.relayed
            leaving.times += before.times
        self.leaving[leaving.endpoint, leaving.epoch] = leaving
        self._state.corridor.changes.stays[_leaving_key(leaving)] = leaving_to_bytes(leaving)
        self._ask_for(leaving)

    def _ask_for(self, leaving: Leaving) -> None:
        for held in leaving.subscriptions:
            self._state.interest.put(_interest_key(leaving, held), ON_THE_MOVE, held.subscription)

    def taken(self, taken: Taken, now: Instant) -> bool:
        """The other edge asks for everything itself, and that stands in the log; tells whether all that left is taken."""
        leaving = self.leaving.get((taken.endpoint, taken.epoch))
        if leaving is None:
            return False
        leaving.times -= 1
        if leaving.times:
            self._state.corridor.changes.stays[_leaving_key(leaving)] = leaving_to_bytes(leaving)
            return False
        del self.leaving[leaving.endpoint, leaving.epoch]
        self._state.corridor.changes.stays[_leaving_key(leaving)] = None
        for sender, epoch in leaving.relayed:
            self._say_taken(leaving.endpoint, epoch, sender, taken.subscriptions, now)
        self._ask_no_more(leaving)
        return True

    def _ask_no_more(self, leaving: Leaving) -> None:
        state = self._state
        session = state.corridor.sessions.maybe(leaving.endpoint)
        for held in leaving.subscriptions:
            key = wanted_key(state.me, leaving.endpoint, held.name)
            if (session is not None and held.name in session.subscriptions) or self._leaves_still(leaving.endpoint, held.name):
                state.interest.take_away(_interest_key(leaving, held))
            else:
                state.outbox.say(SUBSCRIPTION_INFO, key, None)
                self._ending.setdefault(key, []).append(_interest_key(leaving, held))

    def _leaves_still(self, endpoint: EndpointId, name: str) -> bool:
        return any(held.name == name for one in self.leaving.values() if one.endpoint == endpoint for held in one.subscriptions)

    def ended(self, key: str) -> None:
        """This edge has read its own word that it does not want something, or says again that it does."""
        for one in self._ending.pop(key, ()):
            self._state.interest.take_away(one)

    def give_up(self, endpoint: EndpointId) -> None:
        """Take a claim back, unless something of the endpoint is still on its way from here: somebody may wait for that."""
        state = self._state
        if not self.has_left(endpoint):
            state.register.take_away(endpoint, state.me)
            state.outbox.say(VEHICLE_INFO, claim_key(endpoint, state.me), None)

    def say_nothing_held(self, claim: Claim, now: Instant, *, is_whole: bool) -> None:
        """Tell the edge that waits for a handover that there is none."""
        number = self._state.outbox.next_number(now)
        answer = Handover(claim.endpoint, claim.epoch, self._state.me, claim.edge, number, is_whole=is_whole, is_held=False)
        self._state.write(answer, number, claim.edge)

    def owe(self, handover: Handover) -> None:
        """Who handed over is to hear that it was taken, once what was said until now has arrived."""
        debt = Debt(handover.endpoint, handover.epoch, handover.sender, handover.number)
        self.debts[debt] = self._state.outbox.last_said
        self._state.corridor.changes.stays[_debt_key(debt)] = b""

    def decline(self, handover: Handover, now: Instant) -> None:
        """Tell who handed over what is not wanted, or has no room, that it need not ask for it any more."""
        self._say_taken(handover.endpoint, handover.epoch, handover.sender, (), now)

    def _say_taken(self, endpoint: EndpointId, epoch: Epoch, receiver: EdgeRef, held: tuple[Held, ...], now: Instant) -> None:
        number = self._state.outbox.next_number(now)
        self._state.write(Taken(endpoint, epoch, self._state.me, receiver, number, held), number, receiver)

    def _held_of(self, endpoint: EndpointId) -> tuple[Held, ...]:
        session = self._state.corridor.sessions.maybe(endpoint)
        if session is not None:
            return held_of(session)
        return next((one.subscriptions for one in self.leaving.values() if one.endpoint == endpoint), ())


def _leaving_key(leaving: Leaving) -> str:
    return f"{leaving.endpoint}\n{leaving.epoch}"


def _debt_key(debt: Debt) -> str:
    return f"{debt.endpoint}\n{debt.epoch}\n{debt.sender}\n{debt.number}"


def _interest_key(leaving: Leaving, held: Held) -> str:
    return f"leaving\n{leaving.endpoint}\n{leaving.epoch}\n{held.name}"
