"""A broker as the specification has it, in lists and loops: what each client must be sent, and what may remain."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product

from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.topics import filter_matches, maybe_shared
from milepost.wire.mqtt import Publish, Request, Version


@dataclass
class Said:
    """A message as one taker is to get it."""

    topic: str
    body: bytes
    qos: int
    is_retain_shown: bool
    labels: tuple[int, ...]
    valid_until: Instant
    publication: int
    """Copies of one publication may come in any order."""
    number: int = 0
    """The number it was sent under, 0 before."""
    is_in_flight: bool = False
    is_released: bool = False
    is_sent_here: bool = False
    """It was sent by the process that runs now."""
    is_from_before: bool = False
    """It was kept by a process that died since."""

    def is_expired(self, now: Instant) -> bool:
        return self.valid_until < now

    def is_told_by(self, packet: Publish, version: Version) -> bool:
        is_same = (packet.topic, packet.payload, packet.qos) == (self.topic, self.body, self.qos)
        # Of copies that looked alike in 3.1.1 nobody knows which is which when they come again in 5.
        has_labels = self.number > 0 or packet.properties.subscription_ids == (self.labels if version is Version.V5 else ())
        is_known = not self.number or self.number == packet.number
        return is_same and has_labels and is_known and packet.retain == self.is_retain_shown


@dataclass
class ModelSession:
    """One client; `waiting` holds all it is to get with an acknowledgement, until that has come."""

    name: str
    version: Version
    expiry_s: int
    window: int
    asked: dict[str, tuple[Request, int]] = field(default_factory=dict)
    """Requests and labels by filter."""
    waiting: list[Said] = field(default_factory=list)
    plain: list[Said] = field(default_factory=list)
    """What must have come without acknowledgement when all is quiet."""
    open_numbers: set[int] = field(default_factory=set)
    """Numbers of quality 2 that it sent under and has not ended."""
    is_connected: bool = True
    left_at: Instant = FOREVER

    @property
    def in_flight(self) -> list[Said]:
        return [said for said in self.waiting if said.is_in_flight]

    def on_message(self, packet: Publish, now: Instant) -> None:
        """A message came: it is the first of its topic that was to come, or one that came before."""
        here = self.plain if packet.qos == 0 else self.waiting
        due = [one for one in here if one.topic == packet.topic and not one.is_in_flight and not one.is_expired(now)]
        fitting = [one for one in due if one.publication == due[0].publication and one.is_told_by(packet, self.version)]
        assert fitting, f"{packet} came instead of {due}"
        said = next((one for one in fitting if one.number == packet.number), fitting[0])
        assert packet.dup == (said.number > 0 or said.is_from_before), packet
        if packet.qos == 0:
            self.plain = [one for one in self.plain if one is not said]
            return
        assert packet.number is not None
        assert all(one.number != packet.number for one in self.in_flight), f"{packet.number} is in use"
        said.number, said.is_in_flight, said.is_sent_here = packet.number, True, True
        assert len(self.in_flight) <= self.window, "more in flight than the client takes"

    def check_quiet(self, now: Instant) -> None:
        """Nothing that should have come is missing."""
        assert self.plain == [], self.plain
        due = [one for one in self.waiting if one.is_in_flight or not one.is_expired(now)]
        released = [one for one in self.waiting if one.is_released]
        assert len(self.in_flight) == max(len(released), min(self.window, len(due))), self.waiting
        for one in self.waiting:
            one.is_sent_here &= one.is_in_flight  # else it waits to be sent again: the client takes fewer at a time than before


Choice = tuple[str, int]
"""Who gets a message, and with what quality."""


@dataclass
class Handout:
    """What a publication leads to: what is certain, and of each share (by its filter) those of whom one gets it."""

    own: Counter[Choice]
    shares: dict[str, list[Choice]]
    takers: int = 0


@dataclass
class ModelBroker:
    """All sessions and all retained messages."""

    now: Instant
    sessions: dict[str, ModelSession] = field(default_factory=dict)
    retained: dict[str, tuple[bytes, int, Instant]] = field(default_factory=dict)
    handed: int = 0
    """Messages times takers, whatever becomes of them."""
    publications: int = 0
    twice: int = 0
    """What was sent, counted as delivered, and then lost with its session or expired before it could be sent again."""
    handed_before: int = 0

    def publish(self, sender: str, topic: str, body: bytes, qos: int, *, retain: bool, until: Instant) -> Handout:
        """Everybody's own subscriptions are served; shares are left to `settle_shares`."""
        self.publications += 1
        if retain and body:
            self.retained[topic] = (body, qos, until)
        elif retain:
            self.retained.pop(topic, None)
        handout = Handout(Counter(), {})
        for session in self.sessions.values():
            own: list[tuple[Request, int]] = []
            for request, label in session.asked.values():
                shared = maybe_shared(request.filter)
                if not filter_matches(shared.filter if shared else request.filter, topic):
                    continue
                if shared:
                    handout.shares.setdefault(request.filter, []).append((session.name, min(qos, request.qos)))
                else:
                    own.append((request, label))
            if own and not (session.name == sender and all(request.no_local for request, _ in own)):
                quality = min(qos, max(request.qos for request, _ in own))
                shown = retain and any(request.retain_as_published for request, _ in own)
                labels = tuple(sorted(label for _, label in own if label))
                self.hand(session, Said(topic, body, quality, shown, labels, until, self.publications))
                if quality or session.is_connected:
                    handout.own[session.name, quality] += 1
                handout.takers += 1
        handout.takers += len(handout.shares)
        return handout

    def settle_shares(self, handout: Handout, found: Counter[Choice], said: Said) -> None:
        """One member of each share got it, one that is connected if there is any: `found` must be such a choice."""
        options = []
        for members in handout.shares.values():
            here = [one for one in members if self.sessions[one[0]].is_connected]
            options.append(here or members)
        for chosen in product(*options):
            seen = Counter((name, qos) for name, qos in chosen if qos or self.sessions[name].is_connected)
            if handout.own + seen == found:
                break
        else:
            raise AssertionError(f"{found} is no choice of {options} beside {handout.own}")
        for topic_filter, (name, qos) in zip(handout.shares, chosen, strict=True):
            request, label = self.sessions[name].asked[topic_filter]
            shown = said.is_retain_shown and request.retain_as_published
            self.hand(self.sessions[name], replace(said, qos=qos, is_retain_shown=shown, labels=(label,) if label else ()))

    def hand(self, session: ModelSession, said: Said) -> None:
        self.handed += 1
        if said.qos:
            session.waiting.append(said)
        elif session.is_connected:
            session.plain.append(said)

    def subscribe(self, session: ModelSession, request: Request, label: int) -> None:
        is_new = request.filter not in session.asked
        session.asked[request.filter] = (request, label)
        if maybe_shared(request.filter) or request.retain_handling == 2 or (request.retain_handling == 1 and not is_new):
            return
        self.publications += 1
        for topic, (body, qos, until) in self.retained.items():
            if filter_matches(request.filter, topic) and until >= self.now:
                labels = (label,) if label else ()
                self.hand(session, Said(topic, body, min(qos, request.qos), True, labels, until, self.publications))

    def leave(self, session: ModelSession, expiry_s: int | None = None) -> None:
        session.is_connected, session.left_at = False, self.now
        session.expiry_s = session.expiry_s if expiry_s is None else expiry_s
        for said in session.waiting:
            said.is_in_flight = said.is_released
        if not session.expiry_s:
            self.end(session)

    def end(self, session: ModelSession) -> None:
        self.twice += sum(said.is_sent_here and not said.is_released for said in session.waiting)
        del self.sessions[session.name]

    def resume(self, session: ModelSession, version: Version, expiry_s: int, window: int) -> None:
        session.version, session.expiry_s, session.window, session.is_connected = version, expiry_s, window, True
        gone = [said for said in session.waiting if said.is_expired(self.now) and said.is_sent_here and not said.is_released]
        self.twice += len(gone)
        session.waiting = [said for said in session.waiting if all(said is not one for one in gone)]

    def pass_time(self, seconds: int) -> None:
        self.now = Instant(self.now + seconds * SECOND_NS)
        for session in list(self.sessions.values()):
            if not session.is_connected and session.left_at + session.expiry_s * SECOND_NS <= self.now:
                self.end(session)
        self.retained = {topic: kept for topic, kept in self.retained.items() if kept[2] >= self.now}

    def restart(self, outstanding: int) -> None:
        """The process dies and another begins; `outstanding` is what it found kept and has to hand out."""
        for session in list(self.sessions.values()):
            if session.is_connected:
                self.leave(session)
        for session in self.sessions.values():
            for said in session.waiting:
                said.is_from_before, said.is_sent_here = True, False
        self.handed, self.twice, self.handed_before = 0, 0, outstanding
