"""Active alerts: messages to areas that are still valid, for endpoints that enter later; and the sessions notified of each.

    message to an area         ─▶ activate: active until it expires; replaces the former message about the same incident
    delivered                  ─▶ note_notified: the sessions it was delivered to
    reports                    ─▶ entering: sessions now inside that do not have it yet
    message to those notified  ─▶ notified_sessions: sessions notified of the incident; end: it is no longer active

Invariants:
- an incident belongs to its source, and to its signer once it was signed: no other can replace or cancel its messages;
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

from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.effects import StateChanges
from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.broker.state_codec import publication_from_bytes, publication_to_bytes
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area, Motion, contains_moving
from milepost.model.endpoints import SourceId, SourceKind, kind_of_source, source_id
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Vectors
from milepost.model.reasons import Reason
from milepost.model.site_records import NotifiedIncident
from milepost.trust.alert_origin import UNSIGNED, may_change, signer_in

ACTIVE_MAX: Final = 1_000
"""Maximum active messages."""
ACTIVE_BYTES_MAX: Final = 64_000_000
INCIDENTS_MAX: Final = 2_000
"""Maximum incidents whose notified sessions are remembered."""
NOTIFICATIONS_MAX: Final = 5_000_000
"""Maximum notified sessions, over all incidents."""
HANDOVER_INCIDENTS_MAX: Final = 200
"""Maximum incidents per handover: a handover must fit into one record of the log."""
NOTIFIED_NS: Final = 3_600 * SECOND_NS
"""How long notified sessions are remembered after a message was seen; longer if the message is valid for longer."""

IncidentKey = tuple[SourceId, str]
"""Source and name of an incident."""


class Notification(NamedTuple):
    """The last message about an incident that was delivered to a session."""

    id: int
    had_earlier: bool
    """Whether an earlier message about the incident was delivered, too."""
    is_durable: bool
    """Whether the session is durable."""


@dataclass(slots=True)
class AlertState:
    """The active message about one incident, and the sessions notified of it."""

    notified_until: Instant
    publication: Publication | None = None
    """The active message; None once it is over."""
    signer: str = UNSIGNED
    """The signer of its messages, or the owner of the session that published them (`trust.alert_origin`)."""
    notified: dict[int, Notification] = field(default_factory=dict)
    """By session number."""


class EnteringSessions(NamedTuple):
    """Sessions that have entered the area of an active message."""

    publication: Publication
    numbers: list[int]


class ActiveAlerts:
    """The active messages of an edge, and the sessions notified of them."""

    def __init__(self, counts: BrokerCounters) -> None:
        self._counts = counts
        self._incidents: dict[IncidentKey, AlertState] = {}
        self._bytes = 0
        self._notification_count = 0
        self._caps: tuple[list[IncidentKey], NDArray[np.float64], NDArray[np.float64]] | None = None
        """Of the active messages: keys, centres of the caps around the areas, cosines of the caps; None: to be rebuilt."""
        self._active: dict[IncidentKey, Area] = {}

    def __len__(self) -> int:
        """Return the number of active messages."""
        return len(self._active)

    def note_delivered(self, publication: Publication, receivers: Iterable[Session], changes: StateChanges) -> None:
        """Record that a message goes to its whole audience here: to an area, or the last one on incidents (`ToNotified`)."""
        match publication.address:
            case ToArea():
                if self.activate(publication, changes):
                    self.note_notified(publication, receivers, changes)
            case ToNotified():
                self.end(publication, changes)
            case _:
                pass

    def note_delivered_to(self, publication: Publication, session: Session, changes: StateChanges) -> None:
        """Record that a message goes to one session."""
        match publication.address:
            case ToArea():
                self.note_notified(publication, [session], changes)
            case ToNotified():
                self.end_for_session(session, publication, changes)
            case _:
                pass

    def is_forged(self, publication: Publication) -> bool:
        """Return whether a message to an area is about an incident of another signer."""
        if not isinstance(publication.address, ToArea):
            return False
        incident = self._incidents.get(key_of(publication))
        return incident is not None and not may_change(incident.signer, signer_of(publication))

    def activate(self, publication: Publication, changes: StateChanges) -> bool:
        """Activate an accepted message to an area; return whether it is the latest about its incident."""
        key, incident = self._incident_of(publication, changes)
        if incident.publication is not None and incident.publication.id == publication.id:
            return True
        if incident.publication is not None and incident.publication.seen_at > publication.seen_at:
            return False
        self._deactivate(key, incident, changes)
        if publication.valid_until != FOREVER:
            self._activate(key, incident, publication)
            changes.active_alerts[_text_of(key)] = publication_to_bytes(publication)
        while len(self._active) > ACTIVE_MAX or self._bytes > ACTIVE_BYTES_MAX:
            least = self._least()
            self._deactivate(least, self._incidents[least], changes)
            self._counts.dropped[Reason.ACTIVE_ALERTS_FULL] += 1
        return True

    def _least(self) -> IncidentKey:
        """Return the message to evict: the least urgent, first to expire, of the endpoint that has most; without one, of all."""
        by_source: dict[SourceId, list[IncidentKey]] = {}
        for key in self._active:
            by_source.setdefault(key[0], []).append(key)
        endpoints = [keys for source, keys in by_source.items() if kind_of_source(source) is SourceKind.ENDPOINT]
        keys = max(endpoints, key=len) if endpoints else list(self._active)
        return min(keys, key=lambda one: _worth(self._incidents[one]))

    def restore(self, stored: Iterable[bytes]) -> None:
        """Restore the messages that were active when an earlier process ended."""
        for data in stored:
            publication = publication_from_bytes(data)
            key, incident = self._incident_of(publication, StateChanges())
            self._activate(key, incident, publication)

    def _incident_of(self, publication: Publication, changes: StateChanges) -> tuple[IncidentKey, AlertState]:
        key = key_of(publication)
        valid_until = 0 if publication.valid_until == FOREVER else publication.valid_until
        incident = self._known(key, Instant(max(valid_until, publication.seen_at + NOTIFIED_NS)), changes)
        incident.signer = incident.signer or signer_of(publication)
        return key, incident

    def _known(self, key: IncidentKey, until: Instant, changes: StateChanges) -> AlertState:
        """Return an incident, remembered at least until then; over the limit the oldest are forgotten, active ones last."""
        if key not in self._incidents:
            while len(self._incidents) >= INCIDENTS_MAX or (self._incidents and self._notification_count > NOTIFICATIONS_MAX):
                oldest = next((one for one in self._incidents if one not in self._active), next(iter(self._incidents)))
                self._forget(oldest, changes)
            self._incidents[key] = AlertState(until)
        incident = self._incidents[key]
        incident.notified_until = max(incident.notified_until, until)
        return incident

    def _activate(self, key: IncidentKey, incident: AlertState, publication: Publication) -> None:
        assert isinstance(publication.address, ToArea), "only messages to areas can be active"
        incident.publication, self._active[key], self._caps = publication, publication.address.area, None
        self._bytes += publication.size

    def _deactivate(self, key: IncidentKey, incident: AlertState, changes: StateChanges) -> None:
        if incident.publication is not None:
            self._bytes -= incident.publication.size
            del self._active[key]
            incident.publication = self._caps = None
            changes.active_alerts[_text_of(key)] = None

    def note_notified(self, publication: Publication, sessions: Iterable[Session], changes: StateChanges) -> None:
        """Record that a message to an area was delivered to sessions."""
        key, incident = self._incident_of(publication, changes)
        before = len(incident.notified)
        notifications = {
            (had_earlier, is_durable): Notification(publication.id, had_earlier, is_durable)
            for had_earlier in (False, True)
            for is_durable in (False, True)
        }
        notified, text = incident.notified, _text_of(key)
        latest = incident.publication.id if incident.publication is not None else publication.id
        for session in sessions:
            number, is_durable = session.number, session.is_durable
            if latest != publication.id and number in notified and notified[number].id == latest:
                continue
            notification = notified[number] = notifications[number in notified, is_durable]
            if is_durable:
                changes.notified[number, text] = _row(notification, incident)
        self._notification_count += len(notified) - before

    def was_delivered(self, session: Session, publication: Publication) -> bool:
        """Return whether a message to an area was delivered to a session."""
        incident = self._incidents.get(key_of(publication))
        notification = incident.notified.get(session.number) if incident is not None else None
        return notification is not None and notification.id == publication.id

    def undo_notified(self, session: Session, publication: Publication, changes: StateChanges) -> None:
        """Undo `note_notified` for a message that was dropped before it was sent, so that it may be delivered again."""
        key, number = key_of(publication), session.number
        if not self.was_delivered(session, publication):
            return
        incident = self._incidents[key]
        notification = incident.notified[number]
        if notification.had_earlier:
            self._set_notification(number, key, notification._replace(id=0), changes)
        else:
            self._remove_notification(number, key, changes)

    def _set_notification(self, number: int, key: IncidentKey, notification: Notification, changes: StateChanges) -> None:
        incident = self._incidents[key]
        self._notification_count += number not in incident.notified
        incident.notified[number] = notification
        if notification.is_durable:
            changes.notified[number, _text_of(key)] = _row(notification, incident)

    def _remove_notification(self, number: int, key: IncidentKey, changes: StateChanges) -> None:
        incident = self._incidents[key]
        self._notification_count -= 1
        if incident.notified.pop(number).is_durable:
            changes.notified[number, _text_of(key)] = None
        if not incident.notified and incident.publication is None:
            del self._incidents[key]

    def entering(self, numbers: NDArray[np.int32], points: Vectors, motion: Motion) -> list[EnteringSessions]:
        """Return, for sessions that have just reported, the active messages whose area they have entered."""
        keys, centres, cosines = self._caps or self._make_caps()
        rows, which = np.nonzero(points @ centres.T >= cosines)
        found = []
        for at in np.unique(which).tolist():
            incident = self._incidents[keys[at]]
            assert incident.publication is not None, "the message is active"
            message, notified = incident.publication.id, incident.notified
            near = rows[which == at]
            new = [
                row
                for row, number in zip(near.tolist(), numbers[near].tolist(), strict=True)
                if (notification := notified.get(number)) is None or notification.id != message
            ]
            if new:
                chosen = np.array(new, np.intp)
                inside = chosen[contains_moving(self._active[keys[at]], points[chosen], motion.only(chosen))]
                found += [EnteringSessions(incident.publication, numbers[inside].tolist())] if inside.size else []
        return found

    def _make_caps(self) -> tuple[list[IncidentKey], NDArray[np.float64], NDArray[np.float64]]:
        caps = [area.cap for area in self._active.values()]
        centres = np.array([cap.centre for cap in caps]).reshape(-1, 3)
        self._caps = list(self._active), centres, np.array([cap.cosine for cap in caps])
        return self._caps

    def _cancelled_by(self, publication: Publication) -> list[IncidentKey]:
        """Return the known incidents that a message to those notified cancels: those of its own source and signer."""
        assert isinstance(publication.address, ToNotified), "only messages to those notified cancel"
        signer, keys = signer_of(publication), [(publication.source, name) for name in publication.address.incidents]
        return [key for key in keys if key in self._incidents and may_change(self._incidents[key].signer, signer)]

    def notified_sessions(self, publication: Publication) -> list[int]:
        """Return the sessions notified of the incidents that a message cancels, and that have not received it."""
        found: dict[int, None] = {}
        for key in self._cancelled_by(publication):
            found |= dict.fromkeys(self._incidents[key].notified)
        return list(found)

    def was_notified(self, session: Session, publication: Publication) -> bool:
        """Return whether a session is one of those."""
        return any(session.number in self._incidents[key].notified for key in self._cancelled_by(publication))

    def end(self, publication: Publication, changes: StateChanges) -> None:
        """Forget the incidents that a message cancels: it goes to all sessions here."""
        for key in self._cancelled_by(publication):
            self._forget(key, changes)

    def end_for_session(self, session: Session, publication: Publication, changes: StateChanges) -> None:
        """Forget that a session was notified: the message that cancels these incidents goes to it alone."""
        for key in self._cancelled_by(publication):
            if session.number in self._incidents[key].notified:
                self._remove_notification(session.number, key, changes)

    def is_active(self, publication: Publication) -> bool:
        """Return whether a message to an area, or a later one about its incident, is active."""
        incident = self._incidents.get(key_of(publication))
        return incident is not None and incident.publication is not None and incident.publication.seen_at >= publication.seen_at

    def _forget(self, key: IncidentKey, changes: StateChanges) -> None:
        incident = self._incidents[key]
        self._deactivate(key, incident, changes)
        for number in list(incident.notified):
            self._remove_notification(number, key, changes)
        self._incidents.pop(key, None)

    def forget_session(self, session: Session, changes: StateChanges) -> None:
        """Forget a session that has ended."""
        for key in [key for key, incident in self._incidents.items() if session.number in incident.notified]:
            self._remove_notification(session.number, key, changes)

    def delete_stored(self, session: Session, changes: StateChanges) -> None:
        """Delete the stored state of a session that is no longer durable."""
        for key, incident in self._incidents.items():
            notification = incident.notified.get(session.number)
            if notification is not None and notification.is_durable:
                incident.notified[session.number] = notification._replace(is_durable=False)
                changes.notified[session.number, _text_of(key)] = None

    def notifications_of(self, session: Session) -> tuple[NotifiedIncident, ...]:
        """Return the incidents that a session was notified of, for a handover; over the limit the active and latest ones."""
        known = [key for key, one in self._incidents.items() if session.number in one.notified]
        known.sort(key=self._active.__contains__)
        notifications = [
            (key, self._incidents[key], self._incidents[key].notified[session.number]) for key in known[-HANDOVER_INCIDENTS_MAX:]
        ]
        return tuple(
            NotifiedIncident(*key, notification.id, notification.had_earlier, one.notified_until, one.signer)
            for key, one, notification in notifications
        )

    def adopt(self, session: Session, notified: Iterable[NotifiedIncident], changes: StateChanges) -> None:
        """Take over the incidents that a session was notified of at another edge, or by an earlier process."""
        for one in notified:
            key = (one.source, one.incident)
            incident = self._known(key, one.until, changes)
            incident.signer = incident.signer or one.signer
            mine = incident.notified.get(session.number)
            active = incident.publication.id if incident.publication is not None else 0
            latest = mine.id if mine is not None and mine.id == active else one.id
            self._set_notification(
                session.number, key, Notification(latest, one.had_earlier or mine is not None, session.is_durable), changes
            )

    def expire(self, now: Instant, changes: StateChanges) -> None:
        """Deactivate messages that have expired, and forget incidents after their time."""
        for key in [one for one in self._active if self._is_over(one, now)]:
            self._deactivate(key, self._incidents[key], changes)
        for key in [key for key, one in self._incidents.items() if one.notified_until < now]:
            self._forget(key, changes)

    def _is_over(self, key: IncidentKey, now: Instant) -> bool:
        publication = self._incidents[key].publication
        return publication is not None and publication.valid_until < now


def key_of(publication: Publication) -> IncidentKey:
    """Return the source and incident of a message to an area: the incident that it names, or the message itself."""
    assert isinstance(publication.address, ToArea), "only messages to areas are about an incident"
    return publication.source, publication.address.incident or str(publication.id)


def signer_of(publication: Publication) -> str:
    """Return the signer of a message, or the owner of the session that published it."""
    if publication.signer is not None:
        return publication.signer
    return UNSIGNED if publication.signed is None else signer_in(publication.signed[1])


def _worth(incident: AlertState) -> tuple[int, Instant]:
    assert incident.publication is not None, "the message is active"
    return -incident.publication.priority, incident.publication.valid_until


def _text_of(key: IncidentKey) -> str:
    return "\n".join(key)


def _row(notification: Notification, incident: AlertState) -> bytes:
    return b"%d %d %d %b" % (notification.id, notification.had_earlier, incident.notified_until, incident.signer.encode())


def notification_from_row(key: str, row: bytes) -> NotifiedIncident:
    """Parse a stored notification."""
    source, _, name = key.partition("\n")
    message, had_earlier, until, signer = row.split(b" ", 3)
    return NotifiedIncident(source_id(source), name, int(message), had_earlier == b"1", Instant(int(until)), signer.decode())
