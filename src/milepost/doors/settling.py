"""The end of a turn, for all doors of an edge: keep what changed, carry out what was decided, send, close.

    actions of the turn ─▶ keep ─▶ the most urgent first, each to the door that speaks its dialect ─▶ what waited ─▶ send

What must hold:
- nothing that depends on a change is sent before the change was kept (`Keeper`); if it cannot be kept, no answer that rests on it
  is given, and who was to get a message under it is let go;
- of all that one turn decided, the more urgent class is sent first, whichever door it came in by and leaves by (M29).
"""

from typing import Final, Protocol

from milepost.doors.keeper import Keeper
from milepost.edge.actions import Action, Deliver, Expel, Redirect, Release, Run, Welcome
from milepost.edge.corridor import Corridor
from milepost.edge.sessions import Link, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Reason, Refused

_FIRST: Final = -1


class Door(Protocol):
    """A door as the end of a turn sees it."""

    dialects: tuple[int, ...]
    """Those that no other door speaks."""

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions of one of its dialects."""

    def run(self, action: Run, now: Instant) -> None:
        """Send messages on just as they came in by this door."""

    def release(self, action: Release) -> None:
        """Go on with the exchange of quality 2."""

    def expel(self, link: Link, why: Refused) -> None:
        """Close a link, if it is one of its own."""

    def redirect(self, link: Link, address: str) -> None:
        """Send an endpoint on to another edge, if the link is one of its own."""

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Go on with an endpoint that had to wait for its session, or send it away."""

    def take_back(self, why: Refused) -> None:
        """Do not give the answers of this turn that rest on what could not be kept."""

    def let_go(self, session: Session, why: Refused) -> None:
        """End the connection of a session that cannot be served as it was promised."""

    def resume(self, now: Instant) -> None:
        """Have what waits handed out to those who take more."""

    def send(self, now: Instant) -> bool:
        """Hand everything to the network, close what is over; tells whether another turn is wanted at once."""

    def tick(self, now: Instant) -> None:
        """Once in a while: who was silent too long."""


class Settling:
    """What all doors of an edge have done for them."""

    def __init__(self, corridor: Corridor, keeper: Keeper, *doors: Door) -> None:
        self._corridor = corridor
        self._keeper = keeper
        self._doors: list[Door] = []
        self._by_dialect: dict[int, Door] = {}
        for door in doors:
            self.join(door)

    def join(self, door: Door) -> None:
        """Another door."""
        self._doors.append(door)
        self._by_dialect |= dict.fromkeys(door.dialects, door)

    def settle(self, now: Instant) -> bool:
        """The end of a turn; tells whether more can go at once."""
        corridor = self._corridor
        actions = corridor.take_actions()
        if corridor.changes and not self._keeper.keep(corridor.take_changes(), now):
            actions = self._cut(actions)
        if actions:
            self._carry_out(actions, now)
        for door in self._doors:  # after what was decided before: a session may have come back as another since
            door.resume(now)
        if corridor.deliveries.actions:
            self._carry_out(corridor.take_actions(), now)
        wants_another = False
        for door in self._doors:
            wants_another |= door.send(now)
        return wants_another or bool(corridor.deliveries.actions)

    def tick(self, now: Instant) -> None:
        """Once in a while: what doors and corridor have to do by themselves, and what could not be kept."""
        for door in self._doors:
            door.tick(now)
        self._corridor.tick(now)
        self._keeper.retry(now)

    def _carry_out(self, actions: list[Action], now: Instant) -> None:
        if len(actions) > 1 and len({_urgency(action) for action in actions}) > 1:
            actions = sorted(actions, key=_urgency)
        for action in actions:
            self._carry(action, now)
            if self._corridor.deliveries.actions:  # what could not be sent on as it came
                for made in self._corridor.take_actions():
                    self._carry(made, now)

    def _carry(self, action: Action, now: Instant) -> None:
        match action:
            case Run():
                self._by_dialect[action.dialect].run(action, now)
            case Deliver():
                self._by_dialect[action.dialect].deliver(action, now)
            case Release(session):
                self._by_dialect[session.dialect].release(action)
            case Expel(link, why):
                for door in self._doors:
                    door.expel(link, why)
            case Redirect(link, address):
                for door in self._doors:
                    door.redirect(link, address)
            case Welcome(name, why):
                for door in self._doors:
                    door.welcome(name, why, now)

    def _cut(self, actions: list[Action]) -> list[Action]:
        """The changes of this turn are not kept: whoever was to hear of them is let go instead; gives what may be sent."""
        why = Refused(Reason.STORAGE_UNAVAILABLE, self._corridor.trouble or "")
        for door in self._doors:
            door.take_back(why)
        safe: list[Action] = []
        for action in actions:
            kept = [one for one in action.sessions if one.is_kept] if isinstance(action, Deliver) and action.number else []
            for session in kept:
                self._by_dialect[session.dialect].let_go(session, why)
            if not kept and not isinstance(action, Release):
                safe.append(action)
            elif isinstance(action, Deliver) and (others := [one for one in action.sessions if not one.is_kept]):
                safe.append(Deliver(action.delivery, action.number, others, is_again=action.is_again))
        return safe


def _urgency(action: Action) -> int:
    match action:
        case Run():
            return action.priority
        case Deliver():
            return action.delivery.parcel.priority
        case _:
            return _FIRST
