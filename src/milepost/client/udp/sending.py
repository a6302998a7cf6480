"""What is on its way to the edge: messages, subscriptions and their ends.

    stage      when                                      next
    waiting    not sent yet                              there is a session, and room in the window ─▶ flight; unreliable ─▶ done
    flight     sent, not answered                        received, refusal ─▶ done       not answered in time ─▶ sent again
    done       answered, or given up: EXPIRED if it was never sent, UNANSWERED if it was

What must hold:
- one thing has one name, and what has the same name as another takes its place;
- what is asked for comes before what is said, and emergencies before the rest;
- never more than `WINDOW` are in flight; none is sent more than `TIMES_MAX` times in one session, none after its validity;
- a new session changes nothing but that all in flight is sent again there.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from milepost.client.faults import RefusedByEdge
from milepost.client.udp.events import Done
from milepost.client.udp.waits import Draw, wait_ns
from milepost.model.instants import FOREVER, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.sessions import MessageName, Name, Publish, Subscribe, SubscriptionName, Unsubscribe

FIRST_NS: Final = 300_000_000
MOST_NS: Final = 5_000_000_000
TIMES_MAX: Final = 16
WINDOW: Final = 64
"""So many may be sent and not answered: more would only crowd each other out on the way."""

Letter = Publish | Subscribe | Unsubscribe
_ASKED: Final = 0
_LANES: Final = 1 + len(Priority)


@dataclass(slots=True, eq=False)
class Sending:
    """One thing on its way."""

    name: Name
    letter: Letter
    times: int = 0
    """How often it was sent in this session."""
    due_at: Instant = FOREVER

    @property
    def lane(self) -> int:
        """Where it waits: what is asked for first, then by priority."""
        return 1 + self.letter.message.priority if isinstance(self.letter, Publish) else _ASKED

    @property
    def is_reliable(self) -> bool:
        """Whether the edge answers it."""
        return not isinstance(self.letter, Publish) or self.letter.message.reliable

    @property
    def valid_until(self) -> Instant:
        """After that it is not sent."""
        return self.letter.message.valid_until if isinstance(self.letter, Publish) else FOREVER


class Outbox:
    """All that is on its way."""

    def __init__(self, waiting_max: int, draw: Draw) -> None:
        self._waiting_max = waiting_max
        self._draw = draw
        self._lanes: list[deque[Sending]] = [deque() for _ in range(_LANES)]
        self._flight: dict[Name, Sending] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lanes)) + len(self._flight)

    @property
    def is_full(self) -> bool:
        """Whether as many publications are unanswered as may."""
        asked = len(self._lanes[_ASKED]) + sum(isinstance(name, SubscriptionName) for name in self._flight)
        return len(self) - asked >= self._waiting_max

    @property
    def next_at(self) -> Instant:
        """When something is to be sent again; what waits goes as soon as there is room."""
        return min((sending.due_at for sending in self._flight.values()), default=FOREVER)

    def put(self, letter: Letter) -> None:
        """Have it sent, in place of what has its name."""
        name = name_of(letter)
        self.drop(name)
        sending = Sending(name, letter)
        self._lanes[sending.lane].append(sending)

    def ensure(self, letter: Letter) -> None:
        """Have it sent, unless something of its name is on its way."""
        name = name_of(letter)
        if name not in self._flight and not any(one.name == name for lane in self._lanes for one in lane):
            self.put(letter)

    def drop(self, name: Name, *, if_sent: bool = True) -> None:
        """Nobody wants it sent any more."""
        for number, lane in enumerate(self._lanes):
            if any(one.name == name for one in lane):
                self._lanes[number] = deque(one for one in lane if one.name != name)
        if if_sent:
            self._flight.pop(name, None)

    def on_answer(self, name: Name, refused: RefusedByEdge | None) -> list[Done]:
        """The edge answered; an answer to what is not in flight was heard before."""
        return [] if self._flight.pop(name, None) is None else [Done(name, refused)]

    def start_over(self, now: Instant) -> None:
        """There is a new session: all in flight is sent again, at once."""
        for sending in self._flight.values():
            sending.times, sending.due_at = 0, now

    def take(self, now: Instant, *, is_open: bool) -> tuple[list[Letter], list[Done]]:
        """What to send now, and what is done with that; without a session only what is given up."""
        done = self._given_up(now)
        if not is_open:
            return [], done
        letters = [self._sent(sending, now) for sending in self._flight.values() if now >= sending.due_at]
        while (sending := self._maybe_next()) is not None:
            if sending.is_reliable:
                self._flight[sending.name] = sending
            else:
                done.append(Done(sending.name))
            letters.append(self._sent(sending, now))
        return letters, done

    def _maybe_next(self) -> Sending | None:
        is_full = len(self._flight) >= WINDOW
        for lane in self._lanes:
            if lane and not (is_full and lane[0].is_reliable):
                return lane.popleft()
        return None

    def _sent(self, sending: Sending, now: Instant) -> Letter:
        sending.due_at = Instant(now + wait_ns(FIRST_NS, MOST_NS, sending.times, self._draw))
        sending.times += 1
        return sending.letter

    def _given_up(self, now: Instant) -> list[Done]:
        done = []
        for lane in self._lanes[1:]:
            for sending in [one for one in lane if now > one.valid_until]:
                lane.remove(sending)
                done.append(Done(sending.name, _expired()))
        for sending in list(self._flight.values()):
            is_over = now > sending.valid_until or (sending.times >= TIMES_MAX and now >= sending.due_at)
            if is_over:
                del self._flight[sending.name]
                done.append(Done(sending.name, _unanswered(sending)))
        return done


def name_of(letter: Letter) -> Name:
    """The name by which the edge answers."""
    match letter:
        case Publish():
            return MessageName(letter.message.source, letter.message.id)
        case Subscribe():
            return SubscriptionName(letter.subscription.owner, letter.subscription.id)
        case Unsubscribe():
            return letter.subscription


def _expired() -> RefusedByEdge:
    return RefusedByEdge.of(Reason.EXPIRED, "it was not sent before its validity ended")


def _unanswered(sending: Sending) -> RefusedByEdge:
    how = f"the edge did not answer; it was sent {sending.times} times"
    return RefusedByEdge.of(Reason.UNANSWERED, how)
