"""`milepost edge run`: one edge, from its settings to its last connection.

settings ─▶ storage ─▶ broker, restored ─▶ listeners ─▶ ticks … SIGTERM ─▶ clients disconnected ─▶ storage closed
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

from milepost.broker.admission import Rules
from milepost.broker.broker import Broker
from milepost.broker.effects import Storage, StorageUnavailable
from milepost.broker.presence import Ground
from milepost.broker.restore import restore
from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, UsageFault, cannot_keep, cannot_listen, cannot_read
from milepost.config.settings import Listener as ListenerSettings
from milepost.config.settings import Settings
from milepost.listeners.acceptor import Listener, MqttAcceptor, Take, listen_at
from milepost.listeners.event_loop import ChangeWriter, EventLoop, TickLoop
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import endpoint_id
from milepost.model.instants import Instant
from milepost.model.messages import BODY_BYTES_MAX
from milepost.model.reasons import Malformed
from milepost.runtime.edge_metrics import EdgeMetrics
from milepost.runtime.files import Changed
from milepost.runtime.logs import Log
from milepost.runtime.membership import Membership
from milepost.runtime.monitoring import Monitoring
from milepost.runtime.password_check import Admission, read_users
from milepost.runtime.streams import Wrapper, read_contexts
from milepost.storage import open_storage
from milepost.vetting import MessageLimits
from milepost.vetting.access import Access
from milepost.vetting.payloads import Payloads
from milepost.vetting.reputation import Reputations

if TYPE_CHECKING:
    from milepost.runtime.udp import UdpService


# Admission rules: access, payloads and priorities, from the settings.


def read_rules(settings: Settings) -> Rules:
    """Return the rules of the settings, with the schema files they name."""
    schemas = {one.schema: _content(one.schema) for one in settings.rules.payload if one.schema}
    try:
        return Rules(
            Access(settings.access.rules),
            Payloads([one.rule for one in settings.rules.payload], schemas),
            tuple((one.topic, one.priority) for one in settings.rules.priority),
            needs_password=bool(settings.access.users),
            kinds=settings.incidents.kinds,
        )
    except Malformed as fault:
        raise UsageFault(f"[access] or [rules]: {fault}") from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from None


# The reputation file: read again when it is replaced, and applied to existing sessions, too.


class ReputationFile:
    """Keeps the reputations of the broker equal to a file."""

    def __init__(self, path: str, broker: Broker, log: Log) -> None:
        self._path = path
        self._broker = broker
        self._log = log
        self._changed = Changed(path)

    def look(self) -> None:
        """Read the file if it has changed; one that cannot be read is logged and changes nothing."""
        if not self._changed.has_changed():
            return
        try:
            reputations = read_reputations(self._path)
        except UsageFault as fault:
            self._log.warning("reputations not read", reason=str(fault))
            return
        self._broker.believe(reputations)
        self._log.info("reputations read", endpoints=len(reputations))


def read_reputations(path: str) -> Reputations:
    """Read the scores of a file."""
    try:
        return Reputations.read(Path(path).read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except Malformed as fault:
        raise UsageFault(f"{path}: {fault}") from None


TICK_S: Final = 0.25
LOOK_S: Final = 1.0
"""Interval of the check for replaced files."""

GOODBYE_S: Final = 2.0
"""Time for clients to receive the disconnect when the edge stops."""

_COLLECT_AFTER: Final = 200_000
"""Threshold of the garbage collector: each tick creates and drops thousands of objects, hardly any of them in cycles."""


def run(settings: Settings, reread: Callable[[], Settings] | None = None) -> int:
    """Serve until a signal; return the exit status. *reread* returns the current settings for a reload (SIGHUP)."""
    log = Log(settings.log.level, settings.log.line_format)
    _allow_many_files()
    try:
        storage = open_storage(Path(settings.edge.data), settings.storage.durability)
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
        self._turns = EventLoop()
        self.broker = Broker(settings.limits.edge, endpoint_id(settings.edge.name))
        self._use_ground(settings)
        self._site = Membership(settings, self.broker, self._turns, log) if settings.site.log.name else None
        try:
            kept, now = storage.load(), Instant(time_ns())
        except StorageUnavailable as fault:
            raise cannot_keep(settings.edge.data, str(fault)) from None
        if self._site is None:
            restore(self.broker, kept, now)
        else:
            self._site.restore(kept, now)
        self._reputations = ReputationFile(settings.vetting.reputation, self.broker, log)
        self.broker.use(read_rules(settings))
        context = MqttContext(self.broker, _door_settings(settings), log)
        self._admission = Admission(self._turns, context)
        self._admission.use(read_users(settings))
        self.door = MqttListener(context, self._admission.begin)
        self._settling = TickLoop(self.broker, ChangeWriter(self.broker, storage, log), self.door)
        self._udp = self._open_udp() if settings.udp.address else None
        self._monitoring = Monitoring()
        self._metrics = EdgeMetrics(settings.edge.name, lambda: self._monitoring.up_s, self.door, self._udp, self._site)
        self._monitoring.add_metrics(self._metrics.families)
        self._monitoring.add_check("storage", lambda: self.broker.trouble)
        self._wrappers = [Wrapper(one, settings.mqtt.packet_bytes_max) for one in settings.mqtt.listen]
        self._listeners: list[Listener] = []
        self._stops_at: float | None = None

    def _use_ground(self, settings: Settings) -> None:
        """Apply the coverage, the plausibility limits and the alert rules of the settings."""
        believed = settings.vetting.reports
        said = MessageLimits(BODY_BYTES_MAX, believed.clock_ahead_s_max, believed.move_mps_max)
        self.broker.configure(Ground(settings.edge.area, believed, said), settings.rules.alert)

    def _open_udp(self) -> "UdpService":
        from milepost.runtime.udp import UdpService  # noqa: PLC0415  # loads OpenSSL and protobuf, which MQTT does not need

        udp = UdpService(self._settings, self.broker, self._turns, self._log)
        self._settling.join(udp.door)
        return udp

    def run(self) -> None:
        """Listen, and run the event loop until a signal."""
        turns, settings = self._turns, self._settings
        entrance = MqttAcceptor(turns, self.door)
        mqtt = [self._listen(one.address, partial(entrance.take, wrap=wrapper.wrap)) for one, wrapper in self._mqtt_listeners()]
        http = self._monitoring.listen(turns, settings.http.address)
        turns.settle_with(self._settling.settle)
        if self._site is not None:
            self._site.start()
        turns.every(TICK_S, self._tick)
        self._reputations.look()
        turns.every(LOOK_S, lambda _: self._reputations.look())
        if settings.sys.interval_s:
            self._metrics.publish(Instant(time_ns()))
            turns.every(settings.sys.interval_s, self._metrics.publish)
        self._watch_signals()
        _collect_seldom()
        self._log.info(
            "edge ready",
            name=settings.edge.name,
            mqtt=" ".join(mqtt),
            udp=self._udp.entrance.address if self._udp else None,
            http=http,
            durability=settings.storage.durability.value,
            site=settings.site.log.name or None,
            sessions=self.broker.statistics().sessions,
        )
        turns.run()
        if self._udp is not None:
            self._udp.close()
        if self._site is not None:
            self._site.close()
        self._monitoring.close()
        turns.close()
        self._admission.close()
        self._log.info("edge stopped", sessions=self.broker.statistics().sessions)

    def _mqtt_listeners(self) -> Iterator[tuple[ListenerSettings, Wrapper]]:
        return zip(self._settings.mqtt.listen, self._wrappers, strict=True)

    def _listen(self, address: str, take: Take) -> str:
        """Accept connections at an address; return it with the port that was bound."""
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
        """Accept no new connections, and disconnect all clients."""
        if self._stops_at is not None:
            return
        self._log.info("edge stops", connections=len(self.door.links))
        self._stops_at = monotonic() + GOODBYE_S
        self._monitoring.is_stopping = True
        for listener in self._listeners:
            listener.close()
        self.door.shut()
        if self._udp is not None:
            self._udp.door.shut(now)
        self._settling.settle(now)

    def _reload(self, now: Instant) -> None:
        """Read certificates, users and rules again; if one of them is invalid, nothing changes."""
        del now
        try:
            settings = self._reread()
            rules, users = read_rules(settings), read_users(settings)
            contexts = read_contexts(settings.mqtt.listen)
        except StartFault as fault:
            self._log.warning("reload failed", reason=str(fault))
            return
        for wrapper in self._wrappers:
            wrapper.reload(contexts)
        self._admission.use(users)
        self.broker.use(rules)
        self._use_ground(settings)
        self._log.info("reloaded certificates, users and rules")


def _door_settings(settings: Settings) -> MqttSettings:
    mqtt = settings.mqtt
    return MqttSettings(
        mqtt.topic_alias_max,
        mqtt.packet_bytes_max,
        mqtt.receive_max,
        mqtt.keep_alive_s_max,
        mqtt.handshake_s_max,
        settings.limits.door,
    )


def _allow_many_files() -> None:
    """Raise the limit of open files, and so of connections, to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _collect_seldom() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
