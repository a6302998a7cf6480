"""The oracle: published messages, subscriptions and receipts of all endpoints. It does not know edges, logs and handovers.

What must hold at the end (docs/reference/roaming.md):
- every acknowledged message of QoS 1 or 2 with a lasting matching subscription was received;
- no message was received twice, except as a repetition under the same packet id, or after a merge (`Ledger._may_repeat`);
- endpoints that waited for their session received the messages of one publisher to one topic in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from milepost.model.instants import BEGINNING, Instant
from milepost.model.queries import OnTopic, holds


@dataclass(slots=True)
class Message:
    """A published message."""

    body: bytes
    topic: str
    qos: int
    publisher: str
    era: int
    """Changes when its publisher continues without its session: the order begins anew."""
    site: str
    """The site where it was published: the order holds within a site."""
    sent_at: Instant
    merges: dict[int, Instant]
    """Merges of its publisher since the clean start before the publication (see `Account`)."""
    sends: int = 1
    was_repeated_elsewhere: bool = False
    """Whether its publisher sent it again at another site: either site may have accepted it, and order holds within one."""
    connections: list[int] = field(default_factory=list)
    """The connections of its publisher on which it was sent."""
    acked_at: Instant | None = None


@dataclass(slots=True)
class ExpectedSubscription:
    """A subscription as its endpoint knows it."""

    filter: str
    qos: int
    is_granted: bool = False
    """Whether the edge has acknowledged it."""
    settled_at: Instant | None = None
    """When it is known everywhere; nothing is promised before."""
    ended_at: Instant | None = None

    def matches(self, message: Message) -> bool:
        """Return whether a message matches."""
        return holds(OnTopic(self.filter), message.topic, frozenset())

    def promises(self, message: Message) -> bool:
        """Return whether a message matches and was published when the subscription was known everywhere."""
        return self.settled_at is not None and self.settled_at <= message.sent_at and self.matches(message)

    def covers(self, message: Message, idle_at: list[Instant]) -> bool:
        """Return whether a message must be delivered: also after the end, if the world was idle between the two."""
        if message.acked_at is None or not message.qos or not self.qos or not self.promises(message):
            return False
        return self.ended_at is None or any(message.acked_at < at < self.ended_at for at in idle_at)


@dataclass(slots=True)
class Receipt:
    """One receipt of a message."""

    body: bytes
    number: int
    is_duplicate: bool
    connection: int
    is_confirmed: bool = False
    """Whether the edge has stored the acknowledgement."""


@dataclass(slots=True)
class Account:
    """Subscriptions and receipts of one endpoint since its last clean start."""

    name: str
    is_waiting: bool = True
    """Whether it waits for its session at a new edge."""
    subscriptions: list[ExpectedSubscription] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    merges: dict[int, Instant] = field(default_factory=dict)
    """Connections that were admitted without the session, or with one that was not the last, with their times."""
    merge_sites: dict[int, str] = field(default_factory=dict)
    """The sites of these connections. Cursors do not show which messages of other sites a session has received: a message that
    was published at another site before, and reached the new session late, may come once more with the old session."""
    nothing_promised_before: Instant = BEGINNING
    """Messages published earlier are not promised any more."""
    faults: list[str] = field(default_factory=list)

    def add_subscription(self, topic_filter: str, qos: int, now: Instant) -> None:
        if not any((one.filter, one.qos) == (topic_filter, qos) for one in self.current):
            self.end_subscription(topic_filter, now)
            self.subscriptions.append(ExpectedSubscription(topic_filter, qos))

    def end_subscription(self, topic_filter: str, now: Instant) -> None:
        for one in self.subscriptions:
            if one.filter == topic_filter and one.ended_at is None:
                one.ended_at = now

    @property
    def current(self) -> list[ExpectedSubscription]:
        """The subscriptions that have not ended."""
        return [one for one in self.subscriptions if one.ended_at is None]

    def grant(self, subscriptions: tuple[tuple[str, int], ...]) -> None:
        for one in self.current:
            one.is_granted |= (one.filter, one.qos) in subscriptions

    def forget_unanswered(self) -> None:
        """Forget subscriptions whose acknowledgement the client did not see."""
        self.subscriptions = [one for one in self.subscriptions if one.is_granted]

    def start_clean(self, now: Instant, *, resubscribes: bool = False) -> None:
        """Begin anew; *resubscribes*: the subscriptions will be repeated."""
        self.subscriptions = [ExpectedSubscription(one.filter, one.qos) for one in self.current] if resubscribes else []
        self.receipts.clear()
        if not resubscribes:
            self.merges = {}  # earlier messages refer to the earlier ones
        self.nothing_promised_before = now


class Ledger:
    """All messages and all accounts."""

    def __init__(self) -> None:
        self.messages: dict[bytes, Message] = {}
        self.accounts: dict[str, Account] = {}
        self.checked = 0
        self.has_short_memory = False
        """Whether edges cache few records: a message that came late from another site may be received twice after a merge."""
        self.has_several_sites = False
        """Whether there are several sites, which may serve an endpoint at the same time while no hub joins them."""
        self._idle_at: list[Instant] = []

    def settle_subscriptions(self, now: Instant) -> None:
        """Note that the world is idle: all acknowledged subscriptions are known everywhere."""
        self._idle_at.append(now)
        for account in self.accounts.values():
            for subscription in account.current:
                if subscription.is_granted:
                    subscription.settled_at = subscription.settled_at or now

    def check(self) -> list[str]:
        """Return the faults."""
        return [fault for account in self.accounts.values() for fault in self._check(account)]

    def _check(self, account: Account) -> Iterator[str]:
        seen = {receipt.body for receipt in account.receipts}
        for message in self.messages.values():
            if message.body in seen or message.sent_at < account.nothing_promised_before:
                continue
            if any(subscription.covers(message, self._idle_at) for subscription in account.subscriptions):
                yield f"lost: {account.name} did not get {message}"
        self.checked += len(seen)
        yield from self._duplicates(account)
        yield from self._disorder(account)
        yield from account.faults

    def _duplicates(self, account: Account) -> Iterator[str]:
        by_body: dict[bytes, list[Receipt]] = {}
        for receipt in account.receipts:
            before = by_body.setdefault(receipt.body, [])
            if before and not self._may_repeat(account, before, receipt):
                yield f"duplicate: {account.name} got {receipt} after {before} (merges {list(account.merges)})"
            before.append(receipt)

    def _may_repeat(self, account: Account, before: list[Receipt], receipt: Receipt) -> bool:
        message = self.messages[receipt.body]
        if message.sends > 1 and (message.qos == 1 or self._is_new_session(message)):  # sent more than once
            return True
        if receipt.is_duplicate and any(one.number == receipt.number for one in before):
            return True
        has_many_sessions = len(account.merges) > (1 if self.has_several_sites else 2)  # each of them may have had it
        if has_many_sessions or (self.has_short_memory and account.merges):
            return True
        for merge, at in account.merges.items():
            earlier = [one for one in before if one.connection < merge]
            if not earlier and receipt.connection < merge:
                continue
            if any(one.ended_at is not None and one.ended_at > at and one.matches(message) for one in account.subscriptions):
                return True  # it matched a subscription that has ended
            if earlier and message.sent_at < at and receipt.connection >= merge and len(earlier) == len(before):
                return True  # it reached the new session late
            is_from_elsewhere = message.site != account.merge_sites.get(merge, message.site)
            is_second = len(before) == 1 and merge <= before[0].connection < receipt.connection
            if is_second and is_from_elsewhere and message.sent_at < at:
                return True  # both sessions had it (see `Account.merge_sites`)
        was_in_flight = not any(one.is_confirmed or one.connection == receipt.connection for one in before)
        return bool(account.merges) and receipt.number > 0 and (was_in_flight or receipt.is_duplicate)

    def _is_new_session(self, message: Message) -> bool:
        """Return whether a publisher may have repeated a message in another session than the one in which it sent it first."""
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
            if (message.qos == 1 and message.sends > 1) or message.was_repeated_elsewhere:  # it may be the repetition
                continue
            merges = sum(one <= message.connections[0] for one in message.merges)
            key = (message.publisher, message.topic, message.site, message.era, merges)
            at = (message.sent_at, int(message.body.split(b":")[1]), message.body)
            if last.get(key, at) > at:
                yield f"order: {account.name} got {message.body!r} after {last[key][2]!r}"
            last[key] = at
