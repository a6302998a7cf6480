"""The ledger: what publishers were promised and what subscribers saw. It knows nothing of edges, logs and handovers.

What must hold at the end (docs/reference/roaming.md):
- every message of quality 1 or 2 that was acknowledged and asked for all the while has arrived;
- nothing came twice, but as a repetition under the same number, or, after a merge, what was in flight when a connection broke;
- messages of one publisher to one topic came in the order in which they were published, to whoever waited for its session.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from milepost.model.instants import BEGINNING, Instant
from milepost.model.queries import OnTopic, holds


@dataclass(slots=True)
class Message:
    """Something that was published."""

    body: bytes
    topic: str
    qos: int
    publisher: str
    era: int
    """Changes when its publisher goes on without its session: what it says then is another order."""
    site: str
    """Where it was published: the order holds within a site."""
    sent_at: Instant
    merges: dict[int, Instant]
    """Those of its publisher in the time between two beginnings anew in which it was said (see `Account`)."""
    sends: int = 1
    connections: list[int] = field(default_factory=list)
    """Of its publisher, on which it was sent."""
    acked_at: Instant | None = None


@dataclass(slots=True)
class Wish:
    """A subscription as its endpoint knows it."""

    filter: str
    qos: int
    is_granted: bool = False
    """Whether the edge has said so."""
    settled_at: Instant | None = None
    """From when on everybody knows of it; only then is anything promised."""
    ended_at: Instant | None = None

    def matches(self, message: Message) -> bool:
        """Whether a message is asked for by it."""
        return holds(OnTopic(self.filter), message.topic, frozenset())

    def promises(self, message: Message) -> bool:
        """Whether a message is asked for by it, and was said when everybody knew that."""
        return self.settled_at is not None and self.settled_at <= message.sent_at and self.matches(message)

    def covers(self, message: Message, quiet_at: list[Instant]) -> bool:
        """Whether a message is promised by it: also after its end, if it was quiet between the message and that."""
        if message.acked_at is None or not message.qos or not self.qos or not self.promises(message):
            return False
        return self.ended_at is None or any(message.acked_at < at < self.ended_at for at in quiet_at)


@dataclass(slots=True)
class Receipt:
    """One arrival of a message."""

    body: bytes
    number: int
    is_again: bool
    connection: int
    is_confirmed: bool = False
    """Whether the edge has kept that it was acknowledged."""


@dataclass(slots=True)
class Account:
    """What one endpoint asked for and saw, since it last began anew."""

    name: str
    is_waiting: bool = True
    """Whether it waits for its session where it appears."""
    wishes: list[Wish] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    merges: dict[int, Instant] = field(default_factory=dict)
    """Connections that an edge let in without the session that was to be there, or with one that was not the last: and when."""
    lost_before: Instant = BEGINNING
    """What was published before that is not promised any more."""
    faults: list[str] = field(default_factory=list)

    def wish(self, topic_filter: str, qos: int, now: Instant) -> None:
        if not any((one.filter, one.qos) == (topic_filter, qos) for one in self.current):
            self.unwish(topic_filter, now)
            self.wishes.append(Wish(topic_filter, qos))

    def unwish(self, topic_filter: str, now: Instant) -> None:
        for one in self.wishes:
            if one.filter == topic_filter and one.ended_at is None:
                one.ended_at = now

    @property
    def current(self) -> list[Wish]:
        """What it asks for now."""
        return [one for one in self.wishes if one.ended_at is None]

    def grant(self, wishes: tuple[tuple[str, int], ...]) -> None:
        for one in self.current:
            one.is_granted |= (one.filter, one.qos) in wishes

    def forget_asked(self) -> None:
        """Whoever asked has gone before it was answered: it does not count on it."""
        self.wishes = [one for one in self.wishes if one.is_granted]

    def begin_anew(self, now: Instant, *, is_asking: bool = False) -> None:
        """Nothing of what was counts any more; `is_asking`: but what is asked for will be asked for again."""
        self.wishes = [Wish(one.filter, one.qos) for one in self.current] if is_asking else []
        self.receipts.clear()
        if not is_asking:
            self.merges = {}  # what was said before is judged by the former ones
        self.lost_before = now


class Ledger:
    """All messages and all accounts."""

    def __init__(self) -> None:
        self.messages: dict[bytes, Message] = {}
        self.accounts: dict[str, Account] = {}
        self.checked = 0
        self.is_forgetful = False
        """Whether edges remember so little that who got something late from another site may get it twice after a merge."""
        self.is_wide = False
        """Whether there are sites that may serve an endpoint at the same time, while no centre joins them."""
        self._quiet_at: list[Instant] = []

    def settle_wishes(self, now: Instant) -> None:
        """It is quiet: from now on everybody knows what is asked for."""
        self._quiet_at.append(now)
        for account in self.accounts.values():
            for wish in account.current:
                if wish.is_granted:
                    wish.settled_at = wish.settled_at or now

    def check(self) -> list[str]:
        """What is wrong."""
        return [fault for account in self.accounts.values() for fault in self._check(account)]

    def _check(self, account: Account) -> Iterator[str]:
        seen = {receipt.body for receipt in account.receipts}
        for message in self.messages.values():
            if message.body in seen or message.sent_at < account.lost_before:
                continue
            if any(wish.covers(message, self._quiet_at) for wish in account.wishes):
                yield f"lost: {account.name} did not get {message}"
        self.checked += len(seen)
        yield from self._doubles(account)
        yield from self._disorder(account)
        yield from account.faults

    def _doubles(self, account: Account) -> Iterator[str]:
        by_body: dict[bytes, list[Receipt]] = {}
        for receipt in account.receipts:
            before = by_body.setdefault(receipt.body, [])
            if before and not self._may_repeat(account, before, receipt):
                yield f"double: {account.name} got {receipt} after {before} (merges {list(account.merges)})"
            before.append(receipt)

    def _may_repeat(self, account: Account, before: list[Receipt], receipt: Receipt) -> bool:
        message = self.messages[receipt.body]
        if message.sends > 1 and (message.qos == 1 or self._is_new_session(message)):  # its publisher said it more than once
            return True
        if receipt.is_again and any(one.number == receipt.number for one in before):
            return True
        is_torn = len(account.merges) > (1 if self.is_wide else 2)  # so many sessions at once that each may have had it
        if is_torn or (self.is_forgetful and account.merges):
            return True
        for merge, at in account.merges.items():
            earlier = [one for one in before if one.connection < merge]
            if not earlier and receipt.connection < merge:
                continue
            if any(wish.ended_at is not None and wish.ended_at > at and wish.matches(message) for wish in account.wishes):
                return True  # it came by a subscription that is no more
            if earlier and message.sent_at < at and receipt.connection >= merge and len(earlier) == len(before):
                return True  # it came late, to a subscription that was made anew
        was_in_flight = not any(one.is_confirmed or one.connection == receipt.connection for one in before)
        return bool(account.merges) and receipt.number > 0 and (was_in_flight or receipt.is_again)

    def _is_new_session(self, message: Message) -> bool:
        """Whether a publisher may have repeated a message in a session that is not the one in which it said it first."""
        return any(merge <= message.connections[-1] for merge in message.merges)

    def _disorder(self, account: Account) -> Iterator[str]:
        if account.merges or not account.is_waiting:
            return
        last: dict[tuple[str, str, str, int, int], tuple[Instant, int, bytes]] = {}
        seen: set[bytes] = set()
        for receipt in account.receipts:
            if receipt.body in seen:
                continue
            seen.add(receipt.body)
            message = self.messages[receipt.body]
            if message.qos == 1 and message.sends > 1:  # the one that came may be the repetition
                continue
            merges = sum(one <= message.connections[0] for one in message.merges)
            key = (message.publisher, message.topic, message.site, message.era, merges)
            at = (message.sent_at, int(message.body.split(b":")[1]), message.body)
            if last.get(key, at) > at:
                yield f"order: {account.name} got {message.body!r} after {last[key][2]!r}"
            last[key] = at
