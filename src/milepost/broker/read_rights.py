"""Read rights: which sessions may receive messages on which topics. Every delivery is decided here, when it is made.

    subscriptions ─▶ RouteCache: receivers of a topic, without those that may not read it, cached with the route
    addressed, retained, replies, catch-up ─▶ may_receive, for each session
    new rules, a resumed session ─▶ Broker.enforce_rights: subscriptions and queued messages that are no longer allowed end

Invariants:
- without a rule that denies reading, nothing is checked and nothing is cached;
- the rules that can match a topic are cached for a limited number of topics, not for each session: denied topics cost no memory;
- a session that came from another edge is judged when its client connects: until then its identity is not known here, its
  messages only wait, and `Broker.connect` drops those that its client may not read.
"""

from typing import Final, NamedTuple

from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.model.addresses import ToNotified
from milepost.model.messages import UNPUBLISH
from milepost.vetting.access import AccessList, TopicReaders

TOPICS_MAX: Final = 10_000
"""Maximum topics whose readers are cached."""


class RevokedRights(NamedTuple):
    """The subscriptions and queued messages that new rules have ended."""

    sessions: int = 0
    """Sessions that lost any."""
    subscriptions: int = 0
    messages: int = 0

    def plus(self, subscriptions: int, messages: int) -> "RevokedRights":
        """Add those of one more session."""
        if not subscriptions and not messages:
            return self
        return RevokedRights(self.sessions + 1, self.subscriptions + subscriptions, self.messages + messages)


class ReadRights:
    """The rights of sessions to receive messages, by the rules in force."""

    def __init__(self) -> None:
        self.use(AccessList())

    def use(self, access: AccessList) -> None:
        """Replace the rules."""
        self._access = access
        self.are_restricted = access.restricts_reading
        """Whether a rule denies anyone to read a topic."""
        self._readers: dict[str, TopicReaders] = {}

    def are_open(self, topic: str) -> bool:
        """Return whether every client may read a topic."""
        return not self.are_restricted or self._readers_of(topic).verdict is True

    def may_receive(self, session: Session, publication: Publication) -> bool:
        """Return whether a session may receive a message."""
        if not self.are_restricted or _ends_a_received_message(publication):
            return True
        return self.may_read(session, publication.topic)

    def may_read(self, session: Session, topic: str) -> bool:
        """Return whether a session may receive messages on a topic."""
        return not self.are_restricted or self._readers_of(topic).include(session.identity)

    def find_reading(self, topic: str, sessions: list[Session]) -> list[bool] | None:
        """Return, for each session, whether it may receive messages on a topic; None if all may."""
        if self.are_open(topic):
            return None
        readers = self._readers_of(topic)
        return [readers.include(session.identity) for session in sessions]

    def _readers_of(self, topic: str) -> TopicReaders:
        readers = self._readers.get(topic)
        if readers is None:
            if len(self._readers) >= TOPICS_MAX:
                self._readers.clear()
            readers = self._readers[topic] = self._access.readers_of(topic)
        return readers


def _ends_a_received_message(publication: Publication) -> bool:
    """Return whether a message only retracts another one: endpoints that received that one must learn that it is over."""
    return publication.topic == UNPUBLISH and isinstance(publication.address, ToNotified)
