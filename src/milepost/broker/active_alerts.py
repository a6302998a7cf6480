"""Active alerts: messages to areas that are still valid, for endpoints that enter later; and the sessions notified of each.

    message to an area         ─▶ put: active until it expires; replaces the former message about the same incident
    delivered                  ─▶ note: the sessions it was delivered to
    reports                    ─▶ entering: sessions now inside that do not have it yet
    message to those notified  ─▶ who_was_told: sessions notified of the incident; end: it is no longer active

Invariants:
- an incident belongs to its source: no other source can replace or cancel its messages;
- `entering` never returns a session that already has the message, from this edge or from the one it came from;
- active messages, incidents and notified sessions are limited; the least urgent message is evicted first, then the first to
  expire;
- for durable sessions, all state that must survive a restart is in `changes` in the tick in which it changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.broker.counts import Counts
from milepost.broker.effects import Changes
from milepost.broker.persistence import publication_from_bytes, publication_to_bytes
from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area, Going, holds_going
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Vectors
from milepost.model.reasons import Reason
from milepost.model.sites import NotifiedIncident

STANDING_MAX: Final = 1_000
"""Maximum active messages."""
STANDING_BYTES_MAX: Final = 64_000_000
INCIDENTS_MAX: Final = 2_000
"""Maximum incidents whose notified sessions are remembered."""
MARKS_MAX: Final = 5_000_000
"""Maximum notified sessions, over all incidents."""
TAKEN_ALONG_MAX: Final = 200
"""Maximum incidents per handover: a handover must fit into one record of the log."""
TOLD_NS: Final = 3_600 * SECOND_NS
"""How long notified sessions are remembered after a message was seen; longer if the message is valid for longer."""

Key = tuple[EndpointId, str]
"""Source and name of an incident."""


class Mark(NamedTuple):
    """The last message about an incident that was delivered to a session."""

    id: int
    is_again: bool
    """Whether an earlier message about the incident was delivered, too."""
    is_kept: bool
    """Whether the session is durable."""


@dataclass(slots=True)
class AlertState:
    """The active message about one incident, and the sessions notified of it."""

    told_until: Instant
    publication: Publication | None = None
    """The active message; None once it is over."""
    told: dict[int, Mark] = field(default_factory=dict)
    """By session number."""


class Entering(NamedTuple):
    """Sessions that have entered the area of an active message."""

    publication: Publication
    numbers: list[int]


class ActiveAlerts:
    """The active messages of an edge, and the sessions notified of them."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._incidents: dict[Key, AlertState] = {}
        self._bytes = 0
        self._marks = 0
        self._caps: tuple[list[Key], NDArray[np.float64], NDArray[np.float64]] | None = None
        """Of the active messages: keys, centres of the caps around the areas, cosines of the caps; None: to be rebuilt."""
        self._standing: dict[Key, Area] = {}

    def __len__(self) -> int:
        """Return the number of active messages."""
        return len(self._standing)

    def handed_out(self, publication: Publication, takers: Iterable[Session], changes: Changes) -> None:
        """Record that a message goes to its whole audience here: to an area, or the last one on incidents (`ToNotified`)."""
        match publication.address:
            case ToArea():
                if self.put(publication, changes):
                    self.note(publication, takers, changes)
            case ToNotified(incidents):
                self.end(publication.source, incidents, changes)
            case _:
                pass

    def handed_one(self, publication: Publication, session: Session, changes: Changes) -> None:
        """Record that a message goes to one session."""
        match publication.address:
            case ToArea():
                self.note(publication, [session], changes)
            case ToNotified(incidents):
                self.end_for(session, publication.source, incidents, changes)
            case _:
                pass

    def put(self, publication: Publication, changes: Changes) -> bool:
        """Activate an accepted message to an area; return whether it is the latest about its incident."""
        key, incident = self._incident_of(publication, changes)
        if incident.publication is not None and incident.publication.id == publication.id:
            return True
        if incident.publication is not None and incident.publication.seen_at > publication.seen_at:
            return False
        self._stop(key, incident, changes)
        if publication.valid_until != FOREVER:
            self._stand(key, incident, publication)
            changes.standing[_text_of(key)] = publication_to_bytes(publication)
        while len(self._standing) > STANDING_MAX or self._bytes > STANDING_BYTES_MAX:
            least = min(self._standing, key=lambda one: _worth(self._incidents[one]))
            self._stop(least, self._incidents[least], changes)
            self._counts.dropped[Reason.STANDING_FULL] += 1
        return True

    def restore(self, kept: Iterable[bytes]) -> None:
        """Restore the messages that were active when an earlier process ended."""
        for data in kept:
            publication = publication_from_bytes(data)
            key, incident = self._incident_of(publication, Changes())
            self._stand(key, incident, publication)

    def _incident_of(self, publication: Publication, changes: Changes) -> tuple[Key, AlertState]:
        key = key_of(publication)
        valid_until = 0 if publication.valid_until == FOREVER else publication.valid_until
        return key, self._known(key, Instant(max(valid_until, publication.seen_at + TOLD_NS)), changes)

    def _known(self, key: Key, until: Instant, changes: Changes) -> AlertState:
        """Return an incident, remembered at least until then; over the limit the oldest are forgotten, active ones last."""
        if key not in self._incidents:
            while len(self._incidents) >= INCIDENTS_MAX or (self._incidents and self._marks > MARKS_MAX):
                oldest = next((one for one in self._incidents if one not in self._standing), next(iter(self._incidents)))
                self._forget(oldest, changes)
            self._incidents[key] = AlertState(until)
        incident = self._incidents[key]
        incident.told_until = max(incident.told_until, until)
        return incident

    def _stand(self, key: Key, incident: AlertState, publication: Publication) -> None:
        assert isinstance(publication.address, ToArea), "only those stand"
        incident.publication, self._standing[key], self._caps = publication, publication.address.area, None
        self._bytes += publication.size

    def _stop(self, key: Key, incident: AlertState, changes: Changes) -> None:
        if incident.publication is not None:
            self._bytes -= incident.publication.size
            del self._standing[key]
            incident.publication = self._caps = None
            changes.standing[_text_of(key)] = None

    def note(self, publication: Publication, sessions: Iterable[Session], changes: Changes) -> None:
        """Record that a message to an area was delivered to sessions."""
        key, incident = self._incident_of(publication, changes)
        before = len(incident.told)
        marks = {(again, kept): Mark(publication.id, again, kept) for again in (False, True) for kept in (False, True)}
        told, text = incident.told, _text_of(key)
        latest = incident.publication.id if incident.publication is not None else publication.id
        for session in sessions:
            number, is_kept = session.number, session.is_kept
            if latest != publication.id and number in told and told[number].id == latest:
                continue
            mark = told[number] = marks[number in told, is_kept]
            if is_kept:
                changes.told[number, text] = _row(mark, incident)
        self._marks += len(told) - before

    def has_had(self, session: Session, publication: Publication) -> bool:
        """Return whether a message to an area was delivered to a session."""
        incident = self._incidents.get(key_of(publication))
        mark = incident.told.get(session.number) if incident is not None else None
        return mark is not None and mark.id == publication.id

    def untell(self, session: Session, publication: Publication, changes: Changes) -> None:
        """Undo `note` for a message that was dropped before it was sent, so that it may be delivered again."""
        key, number = key_of(publication), session.number
        if not self.has_had(session, publication):
            return
        incident = self._incidents[key]
        mark = incident.told[number]
        if mark.is_again:
            self._mark(number, key, mark._replace(id=0), changes)
        else:
            self._unmark(number, key, changes)

    def _mark(self, number: int, key: Key, mark: Mark, changes: Changes) -> None:
        incident = self._incidents[key]
        self._marks += number not in incident.told
        incident.told[number] = mark
        if mark.is_kept:
            changes.told[number, _text_of(key)] = _row(mark, incident)

    def _unmark(self, number: int, key: Key, changes: Changes) -> None:
        incident = self._incidents[key]
        self._marks -= 1
        if incident.told.pop(number).is_kept:
            changes.told[number, _text_of(key)] = None
        if not incident.told and incident.publication is None:
            del self._incidents[key]

    def entering(self, numbers: NDArray[np.int32], points: Vectors, going: Going) -> list[Entering]:
        """Return, for sessions that have just reported, the active messages whose area they have entered."""
        keys, centres, cosines = self._caps or self._make_caps()
        rows, which = np.nonzero(points @ centres.T >= cosines)
        found = []
        for at in np.unique(which).tolist():
            incident = self._incidents[keys[at]]
            assert incident.publication is not None, "it stands"
            message, told = incident.publication.id, incident.told
            near = rows[which == at]
            new = [
                row
                for row, number in zip(near.tolist(), numbers[near].tolist(), strict=True)
                if (mark := told.get(number)) is None or mark.id != message
            ]
            if new:
                chosen = np.array(new, np.intp)
                inside = chosen[holds_going(self._standing[keys[at]], points[chosen], going.only(chosen))]
                found += [Entering(incident.publication, numbers[inside].tolist())] if inside.size else []
        return found

    def _make_caps(self) -> tuple[list[Key], NDArray[np.float64], NDArray[np.float64]]:
        caps = [area.cap for area in self._standing.values()]
        centres = np.array([cap.centre for cap in caps]).reshape(-1, 3)
        self._caps = list(self._standing), centres, np.array([cap.cosine for cap in caps])
        return self._caps

    def who_was_told(self, source: EndpointId, incidents: Iterable[str]) -> list[int]:
        """Return the sessions notified of any of these incidents that have not received the last message on them."""
        found: dict[int, None] = {}
        for name in incidents:
            incident = self._incidents.get((source, name))
            found |= dict.fromkeys(incident.told) if incident is not None else {}
        return list(found)

    def was_told(self, session: Session, source: EndpointId, incidents: Iterable[str]) -> bool:
        """Return whether a session is one of those."""
        return any(session.number in one.told for name in incidents if (one := self._incidents.get((source, name))) is not None)

    def end(self, source: EndpointId, incidents: Iterable[str], changes: Changes) -> None:
        """Forget incidents: the last message on them goes to all sessions here."""
        for name in incidents:
            if (source, name) in self._incidents:
                self._forget((source, name), changes)

    def end_for(self, session: Session, source: EndpointId, incidents: Iterable[str], changes: Changes) -> None:
        """Forget that a session was notified: the last message on these incidents goes to it alone."""
        for name in incidents:
            incident = self._incidents.get((source, name))
            if incident is not None and session.number in incident.told:
                self._unmark(session.number, (source, name), changes)

    def stands(self, publication: Publication) -> bool:
        """Return whether a message to an area, or a later one about its incident, is active."""
        incident = self._incidents.get(key_of(publication))
        return incident is not None and incident.publication is not None and incident.publication.seen_at >= publication.seen_at

    def _forget(self, key: Key, changes: Changes) -> None:
        incident = self._incidents[key]
        self._stop(key, incident, changes)
        for number in list(incident.told):
            self._unmark(number, key, changes)
        self._incidents.pop(key, None)

    def leave(self, session: Session, changes: Changes) -> None:
        """Forget a session that has ended."""
        for key in [key for key, incident in self._incidents.items() if session.number in incident.told]:
            self._unmark(session.number, key, changes)

    def unkeep(self, session: Session, changes: Changes) -> None:
        """Delete the stored state of a session that is no longer durable."""
        for key, incident in self._incidents.items():
            mark = incident.told.get(session.number)
            if mark is not None and mark.is_kept:
                incident.told[session.number] = mark._replace(is_kept=False)
                changes.told[session.number, _text_of(key)] = None

    def told_of(self, session: Session) -> tuple[NotifiedIncident, ...]:
        """Return the incidents that a session was notified of, for a handover; over the limit the active and latest ones."""
        known = [key for key, one in self._incidents.items() if session.number in one.told]
        known.sort(key=self._standing.__contains__)
        marks = [(key, self._incidents[key], self._incidents[key].told[session.number]) for key in known[-TAKEN_ALONG_MAX:]]
        return tuple(NotifiedIncident(*key, mark.id, mark.is_again, one.told_until) for key, one, mark in marks)

    def bring(self, session: Session, told: Iterable[NotifiedIncident], changes: Changes) -> None:
        """Take over the incidents that a session was notified of at another edge, or by an earlier process."""
        for one in told:
            key = (one.source, one.incident)
            incident = self._known(key, one.until, changes)
            mine = incident.told.get(session.number)
            standing = incident.publication.id if incident.publication is not None else 0
            latest = mine.id if mine is not None and mine.id == standing else one.id
            self._mark(session.number, key, Mark(latest, one.is_again or mine is not None, session.is_kept), changes)

    def expire(self, now: Instant, changes: Changes) -> None:
        """Deactivate messages that have expired, and forget incidents after their time."""
        for key in [one for one in self._standing if self._is_over(one, now)]:
            self._stop(key, self._incidents[key], changes)
        for key in [key for key, one in self._incidents.items() if one.told_until < now]:
            self._forget(key, changes)

    def _is_over(self, key: Key, now: Instant) -> bool:
        publication = self._incidents[key].publication
        return publication is not None and publication.valid_until < now


def key_of(publication: Publication) -> Key:
    """Return the source and incident of a message to an area: the incident that it names, or the message itself."""
    assert isinstance(publication.address, ToArea), "only those are about something"
    return publication.source, publication.address.incident or str(publication.id)


def _worth(incident: AlertState) -> tuple[int, Instant]:
    assert incident.publication is not None, "it stands"
    return -incident.publication.priority, incident.publication.valid_until


def _text_of(key: Key) -> str:
    return "\n".join(key)


def _row(mark: Mark, incident: AlertState) -> bytes:
    return b"%d %d %d" % (mark.id, mark.is_again, incident.told_until)


def told_of_row(key: str, row: bytes) -> NotifiedIncident:
    """Parse a stored notification."""
    source, _, name = key.partition("\n")
    message, is_again, until = map(int, row.split())
    return NotifiedIncident(EndpointId(source), name, message, bool(is_again), Instant(until))
