"""`milepost edge run`: one edge, from its settings to its last connection.

settings ─▶ storage ─▶ corridor, as it was ─▶ door ─▶ listeners ─▶ turns … SIGTERM ─▶ everybody is told ─▶ storage closed
"""

import gc
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from milepost.doors.asking import HttpEntrance
from milepost.doors.keeper import Keeper
from milepost.doors.listening import Listener, MqttEntrance, Take, listen_at
from milepost.doors.mqtt.desk import Desk, DoorSettings
from milepost.doors.mqtt.door import MqttDoor
from milepost.doors.rules import Rules
from milepost.doors.settling import Settling
from milepost.doors.turns import Turns
from milepost.edge.corridor import Corridor
from milepost.edge.keeping import Storage, StorageUnavailable
from milepost.edge.restoring import restore
from milepost.edge.watching import Ground
from milepost.model.endpoints import endpoint_id
from milepost.model.instants import Instant
from milepost.model.messages import BODY_BYTES_MAX
from milepost.service.addresses import host_and_port
from milepost.service.admission import Admission, read_users
from milepost.service.faults import StartFault, cannot_keep, cannot_listen
from milepost.service.figures import Figures
from milepost.service.logs import Log
from milepost.service.membership import Membership
from milepost.service.reputation import ReputationFile
from milepost.service.rules import read_rules
from milepost.service.settings import Listener as ListenerSettings
from milepost.service.settings import Settings
from milepost.service.wrapping import Wrapper, read_certificates
from milepost.storage import open_storage
from milepost.vetting import MessageLimits

if TYPE_CHECKING:
    from milepost.service.udp import UdpService

TICK_S: Final = 0.25
LOOK_S: Final = 1.0
"""So often files that others replace are looked at."""

GOODBYE_S: Final = 2.0
"""So long clients may take to hear that the edge stops."""

_COLLECT_AFTER: Final = 200_000
"""Objects are made and dropped by the thousand each turn, hardly any of them in circles: look for circles seldom."""


def run(settings: Settings, reread: Callable[[], Settings] | None = None) -> int:
    """Serve until told to stop; gives the exit status. `reread` gives the settings anew when certificates and rules are to be."""
    log = Log(settings.log.level, settings.log.line_format)
    _allow_many_files()
    try:
        storage = open_storage(Path(settings.edge.data), settings.keep.survives)
    except StorageUnavailable as fault:
        raise cannot_keep(settings.edge.data, str(fault)) from None
    try:
        EdgeService(settings, storage, log, reread or (lambda: settings)).run()
    finally:
        storage.close()
    return 0


class EdgeService:
    """The parts of an edge, joined."""

    def __init__(self, settings: Settings, storage: Storage, log: Log, reread: Callable[[], Settings]) -> None:
        self._settings = settings
        self._log = log
        self._reread = reread
        self._turns = Turns()
        self.corridor = Corridor(settings.limits.edge, endpoint_id(settings.edge.name))
        self._use_ground(settings)
        self._site = Membership(settings, self.corridor, self._turns, log) if settings.site.log.name else None
        try:
            kept, now = storage.load(), Instant(time_ns())
        except StorageUnavailable as fault:
            raise cannot_keep(settings.edge.data, str(fault)) from None
        if self._site is None:
            restore(self.corridor, kept, now)
        else:
            self._site.restore(kept, now)
        self._reputations = ReputationFile(settings.vetting.reputation, self.corridor, log)
        rules = read_rules(settings)
        desk = Desk(self.corridor, _door_settings(settings), rules, log)
        self._admission = Admission(self._turns, desk)
        self._admission.use(read_users(settings))
        self.door = MqttDoor(desk, self._admission.begin)
        self._settling = Settling(self.corridor, Keeper(self.corridor, storage, log), self.door)
        self._udp = self._open_udp(rules) if settings.udp.address else None
        self._figures = Figures(settings.edge.name, self.door, self._udp, self._site)
        self._wrappers = [Wrapper(one, settings.mqtt.packet_bytes_max) for one in settings.mqtt.listen]
        self._listeners: list[Listener] = []
        self._stops_at: float | None = None

    def _use_ground(self, settings: Settings) -> None:
        """What the edge covers and believes, and when it raises alerts."""
        believed = settings.vetting.reports
        said = MessageLimits(BODY_BYTES_MAX, believed.clock_ahead_s_max, believed.move_mps_max)
        self.corridor.watch.ground = Ground(settings.edge.area, believed, said)
        self.corridor.alerts.rules = settings.rules.alert

    def _open_udp(self, rules: Rules) -> "UdpService":
        from milepost.service.udp import UdpService  # noqa: PLC0415  # brings OpenSSL and protobuf, which MQTT does without

        udp = UdpService(self._settings, self.corridor, rules, self._turns, self._log)
        self._settling.join(udp.door)
        return udp

    def run(self) -> None:
        """Listen, and take turns until told to stop."""
        turns, settings = self._turns, self._settings
        entrance = MqttEntrance(turns, self.door)
        mqtt = [self._listen(one.address, partial(entrance.take, wrap=wrapper.wrap)) for one, wrapper in self._mqtt_listeners()]
        http = self._listen_for_questions()
        turns.settle_with(self._settling.settle)
        if self._site is not None:
            self._site.start()
        turns.every(TICK_S, self._tick)
        self._reputations.look()
        turns.every(LOOK_S, lambda _: self._reputations.look())
        if settings.sys.interval_s:
            self._figures.publish(Instant(time_ns()))
            turns.every(settings.sys.interval_s, self._figures.publish)
        self._watch_signals()
        _collect_seldom()
        self._log.info(
            "edge ready",
            name=settings.edge.name,
            mqtt=" ".join(mqtt),
            udp=self._udp.entrance.address if self._udp else None,
            http=http,
            survives=settings.keep.survives.value,
            site=settings.site.log.name or None,
            sessions=len(self.corridor.sessions),
        )
        turns.run()
        if self._udp is not None:
            self._udp.close()
        if self._site is not None:
            self._site.close()
        turns.close()
        self._admission.close()
        self._log.info("edge stopped", sessions=len(self.corridor.sessions))

    def _mqtt_listeners(self) -> Iterator[tuple[ListenerSettings, Wrapper]]:
        return zip(self._settings.mqtt.listen, self._wrappers, strict=True)

    def _listen_for_questions(self) -> str | None:
        if not self._settings.http.address:
            return None
        asking = HttpEntrance(self._turns, self._figures.answer)
        self._turns.every(1.0, asking.tick)
        return self._listen(self._settings.http.address, asking.take)

    def _listen(self, address: str, take: Take) -> str:
        """Take connections at an address; gives the address with the port that was found."""
        host, port = host_and_port(address)
        try:
            listener = Listener(self._turns, listen_at(host, port), take)
        except OSError as error:
            raise cannot_listen(address, error) from None
        self._listeners.append(listener)
        return listener.address

    def _watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._turns.call_soon(self._begin_stop))
        signal.signal(signal.SIGHUP, lambda *_: self._turns.call_soon(self._reload))

    def _tick(self, now: Instant) -> None:
        self._settling.tick(now)
        if self._site is not None:
            self._site.tick(now)
        self._log.tell_suppressed()
        if self._stops_at is not None and (not self.door.links or monotonic() > self._stops_at):
            self._turns.stop()

    def _begin_stop(self, now: Instant) -> None:
        """Take nobody new, and tell everybody who is here."""
        if self._stops_at is not None:
            return
        self._log.info("edge stops", connections=len(self.door.links))
        self._stops_at = monotonic() + GOODBYE_S
        self._figures.is_ready = False
        for listener in self._listeners:
            listener.close()
        self.door.shut()
        if self._udp is not None:
            self._udp.door.shut(now)
        self._settling.settle(now)

    def _reload(self, now: Instant) -> None:
        """Read certificates, users and rules again; if one of them will not do, everything stays as it was."""
        del now
        try:
            settings = self._reread()
            rules, users = read_rules(settings), read_users(settings)
            contexts = [read_certificates(listener) for listener in settings.mqtt.listen]
        except StartFault as fault:
            self._log.warning("reload failed", reason=str(fault))
            return
        for wrapper, context in zip(self._wrappers, contexts, strict=False):  # listeners themselves stay as they are
            wrapper.use(context)
        self._admission.use(users)
        self.door.use(rules)
        self._use_ground(settings)
        if self._udp is not None:
            self._udp.door.use(rules)
        self._log.info("reloaded certificates, users and rules")


def _door_settings(settings: Settings) -> DoorSettings:
    mqtt = settings.mqtt
    return DoorSettings(
        mqtt.topic_alias_max,
        mqtt.packet_bytes_max,
        mqtt.receive_max,
        mqtt.keep_alive_s_max,
        mqtt.handshake_s_max,
        settings.limits.door,
    )


def _allow_many_files() -> None:
    """As many connections as the system lets this user have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _collect_seldom() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
