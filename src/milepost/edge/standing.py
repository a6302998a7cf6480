"""Standing: messages to areas that are still valid, for who comes in later; and who was told of what, for the last word on it.

    message to an area ─▶ put: stands until it is no longer valid, in place of the last one about the same incident
    handed out         ─▶ note: who was handed it
    reports            ─▶ entering: who is inside now and was not handed it
    message to told    ─▶ who_was_told: who was handed anything of it; end: it stands no more

What must hold:
- an incident is the source's: nobody takes the place of what another has said, or calls it off;
- nobody is handed a message by `entering` that it was handed before, here or where it came from;
- what stands, and who was told of how many incidents, is limited; what has to go is the least urgent, then what ends first;
- for sessions that are kept, whatever a process needs to go on is in `changes` in the turn in which it changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.edge.counts import Counts
from milepost.edge.journal import parcel_from_bytes, parcel_to_bytes
from milepost.edge.keeping import Changes
from milepost.edge.parcels import Parcel
from milepost.edge.sessions import Session
from milepost.model.addresses import ToArea, ToTold
from milepost.model.areas import Area, Going, holds_going
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Vectors
from milepost.model.reasons import Reason
from milepost.model.sites import ToldOf

STANDING_MAX: Final = 1_000
"""So many messages stand."""
STANDING_BYTES_MAX: Final = 64_000_000
INCIDENTS_MAX: Final = 2_000
"""Of so many incidents it is known who was told,"""
MARKS_MAX: Final = 5_000_000
"""and so many endpoints of all of them."""
TAKEN_ALONG_MAX: Final = 200
"""Of so many incidents it is said where an endpoint goes: a handover must fit into a record of the log."""
TOLD_NS: Final = 3_600 * SECOND_NS
"""So long after a message was seen, or as long as it is valid if that is longer, it is known who was told."""

Key = tuple[EndpointId, str]
"""Whose incident, and its name."""


class Mark(NamedTuple):
    """What a session was handed last of an incident."""

    id: int
    is_again: bool
    """Whether it had something of the incident before."""
    is_kept: bool
    """Whether the session is."""


@dataclass(slots=True)
class Incident:
    """What was said of one thing, and to whom."""

    told_until: Instant
    parcel: Parcel | None = None
    """What stands; nothing when that is over."""
    told: dict[int, Mark] = field(default_factory=dict)
    """By session number."""


class Entering(NamedTuple):
    """Sessions that have come into the area of something that stands."""

    parcel: Parcel
    numbers: list[int]


class Standing:
    """What stands at an edge, and who was told."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._incidents: dict[Key, Incident] = {}
        self._bytes = 0
        self._marks = 0
        self._caps: tuple[list[Key], NDArray[np.float64], NDArray[np.float64]] | None = None
        """Of what stands: the keys, the centres of the caps around the areas, their cosines; nothing: to be made."""
        self._standing: dict[Key, Area] = {}

    def __len__(self) -> int:
        """How many messages stand."""
        return len(self._standing)

    def handed_out(self, parcel: Parcel, takers: Iterable[Session], changes: Changes) -> None:
        """A message to an area, or a last word, goes to all here whom it concerns."""
        match parcel.address:
            case ToArea():
                if self.put(parcel, changes):
                    self.note(parcel, takers, changes)
            case ToTold(incidents):
                self.end(parcel.source, incidents, changes)
            case _:
                pass

    def handed_one(self, parcel: Parcel, session: Session, changes: Changes) -> None:
        """A message, perhaps one of those, goes to one."""
        match parcel.address:
            case ToArea():
                self.note(parcel, [session], changes)
            case ToTold(incidents):
                self.end_for(session, parcel.source, incidents, changes)
            case _:
                pass

    def put(self, parcel: Parcel, changes: Changes) -> bool:
        """A message to an area was let in; tells whether it is the latest about its incident."""
        key, incident = self._incident_of(parcel, changes)
        if incident.parcel is not None and incident.parcel.id == parcel.id:
            return True
        if incident.parcel is not None and incident.parcel.seen_at > parcel.seen_at:
            return False
        self._stop(key, incident, changes)
        if parcel.valid_until != FOREVER:
            self._stand(key, incident, parcel)
            changes.standing[_text_of(key)] = parcel_to_bytes(parcel)
        while len(self._standing) > STANDING_MAX or self._bytes > STANDING_BYTES_MAX:
            least = min(self._standing, key=lambda one: _worth(self._incidents[one]))
            self._stop(least, self._incidents[least], changes)
            self._counts.dropped[Reason.STANDING_FULL] += 1
        return True

    def restore(self, kept: Iterable[bytes]) -> None:
        """What stood when an earlier process ended."""
        for data in kept:
            parcel = parcel_from_bytes(data)
            key, incident = self._incident_of(parcel, Changes())
            self._stand(key, incident, parcel)

    def _incident_of(self, parcel: Parcel, changes: Changes) -> tuple[Key, Incident]:
        key = key_of(parcel)
        valid_until = 0 if parcel.valid_until == FOREVER else parcel.valid_until
        return key, self._known(key, Instant(max(valid_until, parcel.seen_at + TOLD_NS)), changes)

    def _known(self, key: Key, until: Instant, changes: Changes) -> Incident:
        """An incident, known until then at least; if there are too many, those known longest are forgotten, what stands last."""
        if key not in self._incidents:
            while len(self._incidents) >= INCIDENTS_MAX or (self._incidents and self._marks > MARKS_MAX):
                oldest = next((one for one in self._incidents if one not in self._standing), next(iter(self._incidents)))
                self._forget(oldest, changes)
            self._incidents[key] = Incident(until)
        incident = self._incidents[key]
        incident.told_until = max(incident.told_until, until)
        return incident

    def _stand(self, key: Key, incident: Incident, parcel: Parcel) -> None:
        assert isinstance(parcel.address, ToArea), "only those stand"
        incident.parcel, self._standing[key], self._caps = parcel, parcel.address.area, None
        self._bytes += parcel.size

    def _stop(self, key: Key, incident: Incident, changes: Changes) -> None:
        if incident.parcel is not None:
            self._bytes -= incident.parcel.size
            del self._standing[key]
            incident.parcel = self._caps = None
            changes.standing[_text_of(key)] = None

    def note(self, parcel: Parcel, sessions: Iterable[Session], changes: Changes) -> None:
        """Sessions were handed a message to an area."""
        key, incident = self._incident_of(parcel, changes)
        before = len(incident.told)
        marks = {(again, kept): Mark(parcel.id, again, kept) for again in (False, True) for kept in (False, True)}
        told, text = incident.told, _text_of(key)
        latest = incident.parcel.id if incident.parcel is not None else parcel.id
        for session in sessions:
            number, is_kept = session.number, session.is_kept
            if latest != parcel.id and number in told and told[number].id == latest:
                continue
            mark = told[number] = marks[number in told, is_kept]
            if is_kept:
                changes.told[number, text] = _row(mark, incident)
        self._marks += len(told) - before

    def has_had(self, session: Session, parcel: Parcel) -> bool:
        """Whether a session was handed a message to an area."""
        incident = self._incidents.get(key_of(parcel))
        mark = incident.told.get(session.number) if incident is not None else None
        return mark is not None and mark.id == parcel.id

    def untell(self, session: Session, parcel: Parcel, changes: Changes) -> None:
        """A session will not get what it was handed, and may be handed it again."""
        key, number = key_of(parcel), session.number
        if not self.has_had(session, parcel):
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
        if not incident.told and incident.parcel is None:
            del self._incidents[key]

    def entering(self, numbers: NDArray[np.int32], points: Vectors, going: Going) -> list[Entering]:
        """Who, of sessions that have just said where they are, is to be handed what stands there."""
        keys, centres, cosines = self._caps or self._make_caps()
        rows, which = np.nonzero(points @ centres.T >= cosines)
        found = []
        for at in np.unique(which).tolist():
            incident = self._incidents[keys[at]]
            assert incident.parcel is not None, "it stands"
            message, told = incident.parcel.id, incident.told
            near = rows[which == at]
            new = [
                row
                for row, number in zip(near.tolist(), numbers[near].tolist(), strict=True)
                if (mark := told.get(number)) is None or mark.id != message
            ]
            if new:
                chosen = np.array(new, np.intp)
                inside = chosen[holds_going(self._standing[keys[at]], points[chosen], going.only(chosen))]
                found += [Entering(incident.parcel, numbers[inside].tolist())] if inside.size else []
        return found

    def _make_caps(self) -> tuple[list[Key], NDArray[np.float64], NDArray[np.float64]]:
        caps = [area.cap for area in self._standing.values()]
        centres = np.array([cap.centre for cap in caps]).reshape(-1, 3)
        self._caps = list(self._standing), centres, np.array([cap.cosine for cap in caps])
        return self._caps

    def who_was_told(self, source: EndpointId, incidents: Iterable[str]) -> list[int]:
        """Who was handed anything of some incidents, and no last word."""
        found: dict[int, None] = {}
        for name in incidents:
            incident = self._incidents.get((source, name))
            found |= dict.fromkeys(incident.told) if incident is not None else {}
        return list(found)

    def was_told(self, session: Session, source: EndpointId, incidents: Iterable[str]) -> bool:
        """Whether a session is one of them."""
        return any(session.number in one.told for name in incidents if (one := self._incidents.get((source, name))) is not None)

    def end(self, source: EndpointId, incidents: Iterable[str], changes: Changes) -> None:
        """The last word on some incidents is said to all here."""
        for name in incidents:
            if (source, name) in self._incidents:
                self._forget((source, name), changes)

    def end_for(self, session: Session, source: EndpointId, incidents: Iterable[str], changes: Changes) -> None:
        """The last word on some incidents is said to one who came later."""
        for name in incidents:
            incident = self._incidents.get((source, name))
            if incident is not None and session.number in incident.told:
                self._unmark(session.number, (source, name), changes)

    def stands(self, parcel: Parcel) -> bool:
        """Whether a message to an area, or a later one about its incident, stands."""
        incident = self._incidents.get(key_of(parcel))
        return incident is not None and incident.parcel is not None and incident.parcel.seen_at >= parcel.seen_at

    def _forget(self, key: Key, changes: Changes) -> None:
        incident = self._incidents[key]
        self._stop(key, incident, changes)
        for number in list(incident.told):
            self._unmark(number, key, changes)
        self._incidents.pop(key, None)

    def leave(self, session: Session, changes: Changes) -> None:
        """A session is over."""
        for key in [key for key, incident in self._incidents.items() if session.number in incident.told]:
            self._unmark(session.number, key, changes)

    def unkeep(self, session: Session, changes: Changes) -> None:
        """A session is not to be remembered any more."""
        for key, incident in self._incidents.items():
            mark = incident.told.get(session.number)
            if mark is not None and mark.is_kept:
                incident.told[session.number] = mark._replace(is_kept=False)
                changes.told[session.number, _text_of(key)] = None

    def told_of(self, session: Session) -> tuple[ToldOf, ...]:
        """What a session was told of, for where it goes: what stands, then what is known since last."""
        known = [key for key, one in self._incidents.items() if session.number in one.told]
        known.sort(key=self._standing.__contains__)
        marks = [(key, self._incidents[key], self._incidents[key].told[session.number]) for key in known[-TAKEN_ALONG_MAX:]]
        return tuple(ToldOf(*key, mark.id, mark.is_again, one.told_until) for key, one, mark in marks)

    def bring(self, session: Session, told: Iterable[ToldOf], changes: Changes) -> None:
        """A session was told of this where it comes from, or by an earlier process."""
        for one in told:
            key = (one.source, one.incident)
            incident = self._known(key, one.until, changes)
            mine = incident.told.get(session.number)
            standing = incident.parcel.id if incident.parcel is not None else 0
            latest = mine.id if mine is not None and mine.id == standing else one.id
            self._mark(session.number, key, Mark(latest, one.is_again or mine is not None, session.is_kept), changes)

    def expire(self, now: Instant, changes: Changes) -> None:
        """Stop what is not valid any more, and forget who was told long ago."""
        for key in [one for one in self._standing if self._is_over(one, now)]:
            self._stop(key, self._incidents[key], changes)
        for key in [key for key, one in self._incidents.items() if one.told_until < now]:
            self._forget(key, changes)

    def _is_over(self, key: Key, now: Instant) -> bool:
        parcel = self._incidents[key].parcel
        return parcel is not None and parcel.valid_until < now


def key_of(parcel: Parcel) -> Key:
    """What a message to an area is about, by its source: the incident that it names, or the message itself."""
    assert isinstance(parcel.address, ToArea), "only those are about something"
    return parcel.source, parcel.address.incident or str(parcel.id)


def _worth(incident: Incident) -> tuple[int, Instant]:
    assert incident.parcel is not None, "it stands"
    return -incident.parcel.priority, incident.parcel.valid_until


def _text_of(key: Key) -> str:
    return "\n".join(key)


def _row(mark: Mark, incident: Incident) -> bytes:
    return b"%d %d %d" % (mark.id, mark.is_again, incident.told_until)


def told_of_row(key: str, row: bytes) -> ToldOf:
    """What a session was told of, as it was kept."""
    source, _, name = key.partition("\n")
    message, is_again, until = map(int, row.split())
    return ToldOf(EndpointId(source), name, message, bool(is_again), Instant(until))
