"""The ledger of a run: acknowledgements to senders, messages at receivers, and whether the two agree. Independent of Milepost.

Faults that it finds:
- lost:         a message acknowledged to its sender did not reach a receiver that had subscribed before it was sent (QoS 1, 2);
- duplicated:   a receiver got a message twice. Allowed at QoS 1 if its sender sent it again, or on a later connection of the
                receiver, where it is marked as a duplicate; and at QoS 2 once if the receiver lost its session in the exchange;
- out of order: a receiver got the messages of one sender in another order than they were sent, duplicates aside;
- unexpected:   a message arrived that was not sent, was refused, or was not subscribed to.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


@dataclass
class Sent:
    """The messages of one sender, numbered from 0."""

    qos: int
    count: int = 0
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    """Messages sent again, because there was no acknowledgement."""


class Receipt(NamedTuple):
    """A message that reached a receiver."""

    number: int
    connection: int
    is_duplicate: bool


class Flow(NamedTuple):
    """A receiver and a sender that it subscribes to."""

    receiver: str
    sender: str


class Ledger:
    """Filled by senders and receivers, and evaluated at the end."""

    def __init__(self) -> None:
        self._sent: dict[str, Sent] = {}
        self._first: dict[Flow, int] = {}
        self._seen: dict[Flow, list[Receipt]] = {}
        self._any_order: set[str] = set()
        self._open: dict[Flow, set[int]] = {}

    def open(self, sender: str, qos: int) -> None:
        """Add a sender; all its messages have one QoS."""
        self._sent[sender] = Sent(qos)

    def subscribe(self, receiver: str, sender: str) -> None:
        """Expect all messages of a sender at a receiver, from the next one on; earlier receipts do not count."""
        flow = Flow(receiver, sender)
        assert flow not in self._first, f"{flow} exists already"
        self._first[flow] = self._sent[sender].count
        self._seen[flow] = []

    def allow_any_order(self, receiver: str) -> None:
        """Accept any order at a receiver that did not wait for its session: only lost and duplicated messages count."""
        self._any_order.add(receiver)

    def leave_open(self, receiver: str, sender: str, number: int) -> None:
        """Allow one duplicate: the receiver started a new session during the QoS 2 exchange of a message."""
        self._open.setdefault(Flow(receiver, sender), set()).add(number)

    def send(self, sender: str) -> int:
        """Return the number of the next message, which is sent now."""
        sent = self._sent[sender]
        sent.count += 1
        return sent.count - 1

    def send_again(self, sender: str, number: int) -> None:
        """Note that a message is sent again under its number, on a later connection."""
        self._sent[sender].again.add(number)

    def acknowledge(self, sender: str, number: int) -> None:
        """Note that a message was acknowledged to its sender."""
        self._sent[sender].acknowledged.add(number)

    def refuse(self, sender: str, number: int) -> None:
        """Note that a message was refused."""
        self._sent[sender].refused.add(number)

    def receive(self, receiver: str, sender: str, number: int, *, connection: int, is_duplicate: bool) -> None:
        """Note that a receiver got a message on one of its connections."""
        flow = Flow(receiver, sender)
        if number >= self._first.get(flow, 0):
            self._seen.setdefault(flow, []).append(Receipt(number, connection, is_duplicate))

    def count_sent(self, sender: str) -> int:
        """Return the number of messages of a sender."""
        return self._sent[sender].count

    def count_acknowledged(self, sender: str) -> int:
        """Return the number of its acknowledged messages."""
        return len(self._sent[sender].acknowledged)

    def seen(self, receiver: str, sender: str) -> list[int]:
        """Return the numbers of the received messages, in order of arrival."""
        return [receipt.number for receipt in self._seen.get(Flow(receiver, sender), [])]

    def is_complete(self) -> bool:
        """Return whether no message is missing."""
        return not any(self._missing(flow) for flow in self._first)

    def faults(self) -> list[str]:
        """Return a description of each fault; empty if there is none."""
        found: list[str] = []
        for flow, receipts in self._seen.items():
            numbers = self._missing(flow)
            faults = [f"lost {_ranges(numbers)}"] if numbers else []
            faults += self._duplicated(flow, receipts) + self._unexpected(flow, receipts)
            if flow.receiver not in self._any_order:
                faults += _out_of_order(receipts)
            found += [f"{flow.receiver} of {flow.sender}: {fault}" for fault in faults]
        return found

    def _missing(self, flow: Flow) -> list[int]:
        sent = self._sent[flow.sender]
        if sent.qos == 0 or flow not in self._first:
            return []
        seen = {receipt.number for receipt in self._seen[flow]}
        return sorted(number for number in sent.acknowledged - seen if number >= self._first[flow])

    def _duplicated(self, flow: Flow, receipts: list[Receipt]) -> list[str]:
        sent = self._sent.get(flow.sender, Sent(0))
        left_open = set(self._open.get(flow, ()))
        last: dict[int, Receipt] = {}
        repeated: Counter[int] = Counter()
        for receipt in receipts:
            before = last.get(receipt.number)
            is_repeated = before is not None and receipt.is_duplicate and receipt.connection > before.connection
            is_allowed = sent.qos == 1 and (is_repeated or receipt.number in sent.again)
            if before is not None and not is_allowed and receipt.number in left_open:
                left_open.remove(receipt.number)
            else:
                repeated[receipt.number] += before is not None and not is_allowed
            last[receipt.number] = receipt
        return [f"duplicated {number}, {count + 1} times" for number, count in repeated.items() if count]

    def _unexpected(self, flow: Flow, receipts: list[Receipt]) -> list[str]:
        if flow not in self._first:
            return [f"got {len(receipts)} that it did not subscribe to"]
        sent = self._sent[flow.sender]
        numbers = dict.fromkeys(receipt.number for receipt in receipts)
        found = [f"got {number}, which was never sent" for number in numbers if not 0 <= number < sent.count]
        return found + [f"got {number}, which was refused" for number in numbers if number in sent.refused]


def _out_of_order(receipts: list[Receipt]) -> list[str]:
    firsts = dict.fromkeys(receipt.number for receipt in receipts)
    return [f"{after} came after {before}" for before, after in pairwise(firsts) if after < before]


def _ranges(numbers: list[int]) -> str:
    """Return ranges of numbers as text: `1-3, 7` for 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
