"""An edge as member of a site: what it reads of the site's log, and what it has to append.

    here:       corridor ─▶ take ─▶ `forwarding` ─▶ outbox ─▶ log
    elsewhere:  log ─▶ on_records ─▶ messages: corridor's takers, `youth`;  letters and claims: `roaming`

What must hold:
- nothing here reads or writes a log: records come in, appends and wishes to read back are taken out;
- what was read and what came of it are kept in the same turn;
- a record that cannot be read, or lies, changes nothing but a count.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from milepost.edge.corridor import Corridor
from milepost.edge.elsewhere import Elsewhere
from milepost.edge.keeping import Kept
from milepost.edge.parcels import Parcel
from milepost.edge.restoring import restore
from milepost.edge.sessions import Session
from milepost.edge.site.ahead import Lookout
from milepost.edge.site.delivered import Delivered
from milepost.edge.site.limits import SiteLimits
from milepost.edge.site.moving import ReadBack
from milepost.edge.site.outbox import Append
from milepost.edge.site.recent import Read
from milepost.edge.site.reporting import Reporting
from milepost.edge.site.roaming import Roaming
from milepost.edge.site.sayings import parcel_of
from milepost.edge.site.state import SiteState
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Refused
from milepost.model.sites import (
    ALL,
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    CentreInfo,
    Claim,
    Claimed,
    EdgeInfo,
    EdgeRef,
    Extra,
    Handover,
    Places,
    Prepare,
    Prior,
    Rest,
    Said,
    SiteRecord,
    Taken,
    Wanted,
    claim_of_key,
    inbox_of,
    wanted_key,
)
from milepost.model.telling import REPUTATION
from milepost.vetting import Reputations, Scores
from milepost.wire.records import from_record, to_record
from milepost.wire.records.heads import head_of

SETTLED_NS: Final = 3 * SECOND_NS
"""So long after an endpoint has come what stands waits to hear whether it was told where it comes from."""

_EXTRA: Final = b'{"type":"extra"'
"""How what the centre found for an endpoint begins: whoever has the endpoint reads it, whichever edge of the site it is for."""


class Heard(NamedTuple):
    """A record of the log."""

    offset: int
    key: str
    value: bytes | None
    appended_at: Instant


class SiteMember(Elsewhere):
    """Joins an edge's corridor to its site."""

    def __init__(self, corridor: Corridor, me: EdgeRef, limits: SiteLimits, *, address: str = "") -> None:
        self.state = SiteState(corridor, me, limits)
        self.roaming = Roaming(self.state)
        self.lookout = Lookout(self.state, self.roaming, address)
        self.reporting = Reporting(self.state)
        self.delivered = Delivered(self.state)
        self.scores = Scores()
        self.inbox = inbox_of(me)
        self._name = str(me)
        self._own_said = b'{"type":"said","from":"%b",' % self._name.encode()
        self._own_wanted: set[str] = set()
        """What this edge has said before that it wants, as the log has it."""
        self._edge_keys: dict[str, EdgeRef] = {}
        self._unread: set[str] = {SUBSCRIPTION_INFO, VEHICLE_INFO}
        self._now = Instant(0)
        corridor.elsewhere = self

    def restore(self, kept: Kept, now: Instant) -> None:
        """Go on where an earlier process was, edge and membership."""
        self.state.restore(kept)
        restore(self.state.corridor, kept, now)
        self.roaming.restore(kept.stays, now)

    # Elsewhere, for the corridor

    def is_wanted(self, topic: str) -> bool:
        """Whether anybody elsewhere may want messages on a topic."""
        return self.roaming.forwarder.is_wanted(topic, self._now)

    def take(self, parcel: Parcel, now: Instant) -> Refused | None:
        """Have a message leave, if anybody wants it."""
        return self.roaming.forwarder.take(parcel, now)

    def arrive(self, name: EndpointId, now: Instant, *, is_fresh: bool) -> bool:
        """Whether an endpoint can open its session at once."""
        return self.roaming.arrive(name, now, is_fresh=is_fresh)

    def is_settled(self, session: Session, now: Instant) -> bool:
        """Whether what an endpoint was told elsewhere has come, or it has been here for a while without it."""
        stay = self.roaming.stays.get(session.name)
        return stay is None or stay.is_whole or not 0 <= now - stay.epoch < SETTLED_NS

    def opened(self, session: Session, now: Instant, *, is_fresh: bool) -> None:
        """A session was opened."""
        self.roaming.opened(session, now, is_fresh=is_fresh)

    def ended(self, session: Session) -> None:
        """A session is over."""
        self.roaming.ended(session)

    def subscribed(self, session: Session, name: str) -> None:
        """Something is wanted here."""
        self.roaming.subscribed(session, name)

    def unsubscribed(self, session: Session, name: str) -> None:
        """Something is no longer wanted here."""
        self.roaming.unsubscribed(session, name)

    # From and to the log

    def starts(self) -> dict[str, int | None]:
        """Where to read each topic on; nothing: cross-hub from now on, the others from their beginning."""
        offsets = self.state.offsets
        known: dict[str, int | None] = {topic: offsets.get(topic) for topic in (CROSS_HUB, self.inbox)}
        return known | dict.fromkeys((SUBSCRIPTION_INFO, VEHICLE_INFO, REPUTATION))

    def begin_at(self, offset: int, end: int) -> None:
        """Cross-hub is read from an offset on, and ends somewhere."""
        self.state.recent.begin(offset)
        self.state.note_offset(CROSS_HUB, offset)
        self.state.next_offset, self.state.known_end = offset, end

    def on_records(self, topic: str, records: Sequence[Heard], now: Instant) -> None:
        """Records of one topic, in order."""
        self._now = now
        if topic == REPUTATION:
            self._on_reputations(records)
            return
        for record in records:
            try:
                self._on_record(topic, record, now)
            except (Malformed, ValueError):
                self.state.counts["unreadable"] += 1
        if records and topic in (CROSS_HUB, self.inbox) and not self.roaming.is_unfinished:
            self.state.note_offset(topic, records[-1].offset + 1)
        self.roaming.settle(now)

    def _on_reputations(self, records: Sequence[Heard]) -> None:
        names = set()
        for record in records:
            try:
                names.add(self.scores.take(record.key, record.value))
            except Malformed:
                self.state.counts["unreadable"] += 1
        self.state.corridor.believe(Reputations(self.scores.known), names)

    def _on_record(self, topic: str, record: Heard, now: Instant) -> None:
        if topic == CROSS_HUB:
            self.state.read_at, self.state.next_offset = record.appended_at, record.offset + 1
            if record.key and record.key != self._name and not (record.value or b"").startswith(_EXTRA):
                return
        if record.value is None:
            self._on_removal(topic, record.key)
            return
        value = self._maybe_own(topic, record) or from_record(record.value)
        if isinstance(value, Said):
            self._on_said(topic, record, value, now)
        elif isinstance(value, Extra):
            self.state.recent.put_extra(record.offset, value)
            self.roaming.on_extra(value, now)
        elif topic == SUBSCRIPTION_INFO:
            self._on_info(record.key, value, now)
        else:
            self._on_other(value, now)

    def _maybe_own(self, topic: str, record: Heard) -> Said | None:
        """A message of this edge that has just come back from the log: it is known, and need not be read."""
        value = record.value or b""
        if topic != CROSS_HUB or not value.startswith(self._own_said):
            return None
        head = head_of(value)
        return self.roaming.forwarder.come_back(head.number) if head is not None else None

    def _on_removal(self, topic: str, key: str) -> None:
        if topic == VEHICLE_INFO and not key.startswith("@"):
            self.roaming.on_claim_gone(*claim_of_key(key))
        elif topic == SUBSCRIPTION_INFO:
            self.state.interest.take_away(key)
            self.roaming.departures.ended(key)
            self._own_wanted.discard(key)
            if key in self._edge_keys:
                self.state.edges.pop(self._edge_keys.pop(key), None)

    def _on_said(self, topic: str, record: Heard, said: Said, now: Instant) -> None:
        state = self.state
        if topic == self.inbox:  # a handler's answer, published as if somebody here had
            if state.is_new_letter(said.sender, said.number):
                state.corridor.publish(parcel_of(said), now)
            return
        is_new = state.is_new(said)
        read = Read(record.offset, record.appended_at, len(record.value or b""), said, is_new)
        state.recent.put(read)
        if not is_new:
            return
        parcel = parcel_of(said)
        if said.sender != state.me:
            if parcel.is_retained:
                state.corridor.retain(parcel)
            fan = state.corridor.addressing.fan_for(parcel, now)
            state.corridor.deliveries.hand_out(
                parcel, fan.without(self.roaming.youth.ahead_of(state.stream_of(said), said.number))
            )
            state.counts["received"] += 1
        if len(self.roaming.youth):
            self.roaming.youth.hear(read, parcel, now)

    def _on_info(self, key: str, value: SiteRecord, now: Instant) -> None:
        state = self.state
        match value:
            case Wanted(edge, subscription):
                if edge == state.me:
                    self._own_wanted.add(key)
                elif edge.site != state.me.site or edge.edge != ALL:
                    owner = edge.edge if edge.edge.startswith("@") and edge.site == state.me.site else str(edge)
                    state.interest.put(key, owner, subscription)
            case EdgeInfo():
                if value.edge != state.me:
                    state.edges[value.edge] = value
                    self._edge_keys[key] = value.edge
            case CentreInfo():
                state.centre_at = now if state.is_ready else value.at
            case _:
                state.counts["strange"] += 1

    def _on_other(self, value: SiteRecord, now: Instant) -> None:
        state, roaming = self.state, self.roaming
        match value:
            case Claim():
                roaming.on_claim(value, now)
            case Claimed(claim):
                roaming.on_claim(claim, now)
            case Prior():
                roaming.on_prior(value)
            case Prepare():
                self.lookout.on_prepare(value, now)
            case Handover() | Rest() | Taken():
                if state.is_new_letter(value.sender, value.number, is_last=roaming.is_last(value)):
                    self._on_letter(value, now)
            case Places():
                pass
            case _:
                state.counts["strange"] += 1

    def _on_letter(self, letter: Handover | Rest | Taken, now: Instant) -> None:
        match letter:
            case Handover():
                self.roaming.on_handover(letter, now)
            case Rest():
                self.roaming.on_rest(letter, now)
            case Taken():
                self.roaming.on_taken(letter, now)

    def caught_up(self, topic: str, now: Instant) -> None:
        """A topic was read as far as it was written when this edge started."""
        self._unread.discard(topic)
        if not self._unread and not self.state.is_ready:
            self._say_wanted()
            self.roaming.begin(now)
            self.lookout.introduce()

    def _say_wanted(self) -> None:
        """Say what is wanted here and was not said, and take back what was said and is not."""
        state, current = self.state, set[str]()
        for session in state.corridor.sessions:
            for name, asked in session.subscriptions.items():
                key = wanted_key(state.me, session.name, name)
                current.add(key)
                if key not in self._own_wanted:
                    state.outbox.say(SUBSCRIPTION_INFO, key, to_record(Wanted(state.me, asked.subscription)))
        for leaving in self.roaming.departures.leaving.values():
            for held in leaving.subscriptions:
                key = wanted_key(state.me, leaving.endpoint, held.name)
                current.add(key)
                if key not in self._own_wanted:
                    state.outbox.say(SUBSCRIPTION_INFO, key, to_record(Wanted(state.me, held.subscription)))
        for key in self._own_wanted - current:
            state.outbox.say(SUBSCRIPTION_INFO, key, None)

    def appended(self, appends: list[Append], now: Instant) -> None:
        """The log has them."""
        self.state.outbox.taken(appends, self.state.corridor.changes)
        self.roaming.settle(now)

    def take_read_backs(self) -> list[ReadBack]:
        """What is to be read again from cross-hub, up to where it is read now."""
        found, self.roaming.moving.read_backs = self.roaming.moving.read_backs, {}
        return list(found.values())

    def on_read_back(self, asked: ReadBack, records: Sequence[Heard], now: Instant) -> None:
        """What was to be read again."""
        reads: list[Read] = []
        extras: list[Extra] = []
        for record in records:
            try:
                value = from_record(record.value or b"")
            except Malformed:
                continue
            if isinstance(value, Said):
                reads.append(Read(record.offset, record.appended_at, 0, value))
            elif isinstance(value, Extra):
                extras.append(value)
        self.roaming.on_read_back(asked.endpoint, reads, extras, now)
        self.roaming.settle(now)

    def tick(self, now: Instant) -> None:
        """Do what is due."""
        self._now = now
        self.roaming.tick(now)
        self.state.interest.expire(now)
        self.lookout.tick(now)
        self.reporting.tick(now)
        self.roaming.settle(now)
