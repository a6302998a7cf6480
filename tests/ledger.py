"""The ledger of a run: what senders were told and what takers saw, and whether the two agree. It knows nothing of Milepost.

What must hold:
- lost:         what was acknowledged to its sender reaches every taker that had asked for it before it was sent (QoS 1, 2);
- doubled:      no taker sees a message twice, but for QoS 1 if its sender sent it again, or on a later connection of the taker,
                where it is marked as a repetition; and for QoS 2 once if the taker lost its session during the exchange;
- out of order: a taker sees the messages of one sender in the order in which they were sent, repetitions aside;
- made up:      nothing is seen that was not sent, was refused, or was not asked for.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


@dataclass
class Sent:
    """What one sender sent: numbers from 0 on."""

    qos: int
    count: int = 0
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    """Sent once more, because no acknowledgement had come."""


class Sight(NamedTuple):
    """A message that reached a taker."""

    number: int
    connection: int
    is_repetition: bool


class Wish(NamedTuple):
    """A taker and a sender that it listens to."""

    taker: str
    sender: str


class Ledger:
    """Written by whoever sends and takes; read in the end."""

    def __init__(self) -> None:
        self._sent: dict[str, Sent] = {}
        self._first: dict[Wish, int] = {}
        self._seen: dict[Wish, list[Sight]] = {}
        self._any_order: set[str] = set()
        self._open: dict[Wish, set[int]] = {}

    def open(self, sender: str, qos: int) -> None:
        """A sender begins; all it sends is of one quality."""
        self._sent[sender] = Sent(qos)

    def ask(self, taker: str, sender: str) -> None:
        """From what is sent next on, a taker is to get all of a sender; what it saw before does not count."""
        wish = Wish(taker, sender)
        assert wish not in self._first, f"{wish} stands already"
        self._first[wish] = self._sent[sender].count
        self._seen[wish] = []

    def expect_any_order(self, taker: str) -> None:
        """A taker that did not wait for its session gets the old after the new: only lost and doubled count."""
        self._any_order.add(taker)

    def leave_open(self, taker: str, sender: str, number: int) -> None:
        """A taker begins anew while the exchange of a message of QoS 2 is not over: it may get that one again."""
        self._open.setdefault(Wish(taker, sender), set()).add(number)

    def send(self, sender: str) -> int:
        """The number of what is sent now."""
        sent = self._sent[sender]
        sent.count += 1
        return sent.count - 1

    def send_again(self, sender: str, number: int) -> None:
        """It is sent once more under its old name, on a later connection."""
        self._sent[sender].again.add(number)

    def acknowledge(self, sender: str, number: int) -> None:
        """The sender was told that it is safe."""
        self._sent[sender].acknowledged.add(number)

    def refuse(self, sender: str, number: int) -> None:
        """The sender was told that it was not let in."""
        self._sent[sender].refused.add(number)

    def see(self, taker: str, sender: str, number: int, *, connection: int, is_repetition: bool) -> None:
        """A taker got a message; `connection` tells its connections apart."""
        wish = Wish(taker, sender)
        if number >= self._first.get(wish, 0):
            self._seen.setdefault(wish, []).append(Sight(number, connection, is_repetition))

    def count_sent(self, sender: str) -> int:
        """How many a sender sent."""
        return self._sent[sender].count

    def count_acknowledged(self, sender: str) -> int:
        """How many of them were acknowledged."""
        return len(self._sent[sender].acknowledged)

    def seen(self, taker: str, sender: str) -> list[int]:
        """The numbers that a taker saw, as they came."""
        return [sight.number for sight in self._seen.get(Wish(taker, sender), [])]

    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not any(self._missing(wish) for wish in self._first)

    def faults(self) -> list[str]:
        """What must not be, in words; nothing if all is well."""
        found: list[str] = []
        for wish, sights in self._seen.items():
            numbers = self._missing(wish)
            faults = [f"lost {_ranges(numbers)}"] if numbers else []
            faults += self._doubled(wish, sights) + self._made_up(wish, sights)
            if wish.taker not in self._any_order:
                faults += _out_of_order(sights)
            found += [f"{wish.taker} of {wish.sender}: {fault}" for fault in faults]
        return found

    def _missing(self, wish: Wish) -> list[int]:
        sent = self._sent[wish.sender]
        if sent.qos == 0 or wish not in self._first:
            return []
        seen = {sight.number for sight in self._seen[wish]}
        return sorted(number for number in sent.acknowledged - seen if number >= self._first[wish])

    def _doubled(self, wish: Wish, sights: list[Sight]) -> list[str]:
        sent = self._sent.get(wish.sender, Sent(0))
        left_open = set(self._open.get(wish, ()))
        last: dict[int, Sight] = {}
        again: Counter[int] = Counter()
        for sight in sights:
            before = last.get(sight.number)
            is_repeated = before is not None and sight.is_repetition and sight.connection > before.connection
            may_be_twice = sent.qos == 1 and (is_repeated or sight.number in sent.again)
            if before is not None and not may_be_twice and sight.number in left_open:
                left_open.remove(sight.number)
            else:
                again[sight.number] += before is not None and not may_be_twice
            last[sight.number] = sight
        return [f"doubled {number}, {count + 1} times" for number, count in again.items() if count]

    def _made_up(self, wish: Wish, sights: list[Sight]) -> list[str]:
        if wish not in self._first:
            return [f"got {len(sights)} that it did not ask for"]
        sent = self._sent[wish.sender]
        numbers = dict.fromkeys(sight.number for sight in sights)
        found = [f"got {number}, which was never sent" for number in numbers if not 0 <= number < sent.count]
        return found + [f"got {number}, which was refused" for number in numbers if number in sent.refused]


def _out_of_order(sights: list[Sight]) -> list[str]:
    firsts = dict.fromkeys(sight.number for sight in sights)
    return [f"{after} came after {before}" for before, after in pairwise(firsts) if after < before]


def _ranges(numbers: list[int]) -> str:
    """1-3, 7 for 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
