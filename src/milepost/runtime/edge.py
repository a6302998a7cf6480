"""`milepost edge run`: one edge, from its settings to its last connection.

settings ─▶ storage ─▶ broker, restored ─▶ listeners ─▶ ticks … SIGTERM ─▶ clients disconnected ─▶ storage closed
"""

import gc
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from milepost.broker.broker import Broker
from milepost.broker.effects import Storage, StorageUnavailable
from milepost.broker.presence import PlausibilityRules
from milepost.broker.read_rights import RevokedRights
from milepost.broker.restore import restore
from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, UsageFault, cannot_listen, cannot_read, cannot_store
from milepost.config.settings import ListenerSettings, Settings
from milepost.listeners.acceptor import MqttAcceptor, OnAccept, TcpAcceptor, listen_at
from milepost.listeners.event_loop import ChangeWriter, EventLoop, TickCommitter
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import endpoint_id
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed
from milepost.runtime.admission_rules import message_limits, read_rules
from milepost.runtime.edge_metrics import EdgeMetrics
from milepost.runtime.files import FileWatch
from milepost.runtime.membership import Membership
from milepost.runtime.monitoring import Monitoring
from milepost.runtime.password_check import PasswordChecker, read_users
from milepost.runtime.structured_log import StructuredLog
from milepost.runtime.tls_contexts import Wrapper, read_contexts
from milepost.storage import open_storage
from milepost.vetting.reputation import Reputations

if TYPE_CHECKING:
    from milepost.runtime.edge_trust import EdgeTrust
    from milepost.runtime.udp import UdpService


# The reputation file: read again when it is replaced, and applied to existing sessions, too.


class ReputationFile:
    """Keeps the reputations of the broker equal to a file."""

    def __init__(self, path: str, broker: Broker, log: StructuredLog) -> None:
        self._path = path
        self._broker = broker
        self._log = log
        self._changed = FileWatch(path)

    def reload(self) -> None:
        """Read the file if it has changed; one that cannot be read is logged and changes nothing."""
        if not self._changed.has_changed():
            return
        try:
            reputations = read_reputations(self._path)
        except UsageFault as fault:
            self._log.warning("reputation file not loaded", reason=str(fault))
            return
        self._broker.use_reputations(reputations)
        self._log.info("reputation file loaded", endpoints=len(reputations))


def read_reputations(path: str) -> Reputations:
    """Read the scores of a file."""
    try:
        return Reputations.read(Path(path).read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except Malformed as fault:
        raise UsageFault(f"{path}: {fault}") from None


TICK_S: Final = 0.25
FILE_CHECK_S: Final = 1.0
"""Interval of the check for replaced files."""

SHUTDOWN_S: Final = 2.0
"""Time for clients to receive the disconnect when the edge stops."""

ANNOUNCED_S: Final = 5.0
"""Time for the log of the site to confirm the announcement of this edge; without it the edge serves its clients as well."""

_COLLECT_AFTER: Final = 200_000
"""Threshold of the garbage collector: each tick creates and drops thousands of objects, hardly any of them in cycles."""


def run(settings: Settings, read_again: Callable[[], Settings] | None = None) -> int:
    """Serve until a signal; return the exit status. *read_again* returns the current settings for a reload (SIGHUP)."""
    log = StructuredLog(settings.log.level, settings.log.line_format)
    _allow_many_files()
    try:
        storage = open_storage(Path(settings.edge.data), settings.storage.durability)
    except StorageUnavailable as fault:
        raise cannot_store(settings.edge.data, str(fault)) from None
    try:
        EdgeService(settings, storage, log, read_again or (lambda: settings)).run()
    finally:
        storage.close()
    return 0


class EdgeService:
    """The parts of an edge, joined."""

    def __init__(self, settings: Settings, storage: Storage, log: StructuredLog, read_again: Callable[[], Settings]) -> None:
        self._settings = settings
        self._log = log
        self._read_again = read_again
        self._event_loop = EventLoop()
        self.broker = Broker(settings.limits.broker, endpoint_id(settings.edge.name))
        self._apply_plausibility(settings)
        users = read_users(settings)
        self.broker.use_rules(read_rules(settings, users))  # before sessions are restored: their wills may be due
        self._site = Membership(settings, self.broker, self._event_loop, log, self._log_ready) if settings.site.log.name else None
        try:
            stored, now = storage.load(), Instant(time_ns())
        except StorageUnavailable as fault:
            raise cannot_store(settings.edge.data, str(fault)) from None
        if self._site is None:
            restore(self.broker, stored, now)
        else:
            self._site.restore(stored, now)
        self._reputations = ReputationFile(settings.vetting.reputation, self.broker, log)
        revoked = self.broker.enforce_rights()
        if revoked.sessions:
            log.info("the rules end rights of stored sessions", **_fields_of(revoked))
        context = MqttContext(self.broker, _mqtt_settings(settings), log)
        self._password_checker = PasswordChecker(self._event_loop, context)
        self._password_checker.use(users)
        self.mqtt = MqttListener(context, self._password_checker.begin)
        self._committer = TickCommitter(self.broker, ChangeWriter(self.broker, storage, log), self.mqtt)
        self._trust = self._open_trust()
        self._udp = self._open_udp() if settings.udp.address else None
        self._monitoring = Monitoring()
        self._metrics = EdgeMetrics(lambda: self._monitoring.up_s, self.mqtt, self._udp, self._site)
        self._monitoring.add_metrics(self._metrics.families)
        self._monitoring.add_check("storage", lambda: self.broker.storage_error)
        if self._trust is not None:
            self._monitoring.add_check("trust", self._trust.find_problem)
        self._wrappers = [Wrapper(one, settings.mqtt.packet_bytes_max) for one in settings.mqtt.listen]
        self._listeners: list[TcpAcceptor] = []
        self._addresses: dict[str, str | None] = {}
        """Addresses of the listeners, for the log."""
        self._ready_by: float | None = None
        """Time at which the edge is logged as ready without a confirmation of the site's log; None: it is logged."""
        self._stops_at: float | None = None

    def _apply_plausibility(self, settings: Settings) -> None:
        """Apply the coverage, the plausibility limits and the alert rules of the settings."""
        rules = PlausibilityRules(settings.edge.area, settings.vetting.reports, message_limits(settings))
        self.broker.configure(rules, settings.rules.alert)

    def _open_trust(self) -> "EdgeTrust | None":
        """Read the files of [trust]; without them the edge signs nothing and verifies nothing."""
        trust, udp = self._settings.trust, self._settings.udp
        if not (udp.address or any(astuple(trust))):
            return None
        from milepost.runtime.edge_trust import maybe_edge_trust  # noqa: PLC0415  # loads OpenSSL and protobuf

        found = maybe_edge_trust(self._settings, self._log)
        if found is not None:
            found.apply_to(self.broker)
        return found

    def _open_udp(self) -> "UdpService":
        from milepost.runtime.udp import UdpService  # noqa: PLC0415  # loads OpenSSL and protobuf, which MQTT does not need

        udp = UdpService(self._settings, self.broker, self._event_loop, self._log, self._trust)
        self._committer.add_listener(udp.listener)
        return udp

    def run(self) -> None:
        """Listen, and run the event loop until a signal."""
        event_loop, settings = self._event_loop, self._settings
        acceptor = MqttAcceptor(event_loop, self.mqtt)
        mqtt = [self._listen(one.address, partial(acceptor.accept, wrap=wrapper.wrap)) for one, wrapper in self._mqtt_listeners()]
        http = self._monitoring.listen(event_loop, settings.http.address)
        event_loop.at_end_of_tick(self._committer.commit)
        if self._site is not None:
            self._site.start()
        event_loop.call_every(TICK_S, self._tick)
        self._reputations.reload()
        event_loop.call_every(FILE_CHECK_S, lambda _: self._reputations.reload())
        if self._trust is not None:
            self._trust.publish_revoked_signers(self.broker, Instant(time_ns()))
            event_loop.call_every(FILE_CHECK_S, partial(self._trust.reload, self.broker))
        if settings.sys.interval_s:
            self._metrics.publish_system_topics(Instant(time_ns()))
            event_loop.call_every(settings.sys.interval_s, self._metrics.publish_system_topics)
        self._watch_signals()
        _tune_garbage_collection()
        self._addresses = {"mqtt": " ".join(mqtt), "udp": self._udp.socket.address if self._udp else None, "http": http}
        self._ready_by = monotonic() + ANNOUNCED_S
        if self._site is None:
            self._log_ready()
        event_loop.run()
        if self._udp is not None:
            self._udp.close()
        if self._site is not None:
            self._site.close()
        self._monitoring.close()
        event_loop.close()
        self._password_checker.close()
        self._log.info("edge stopped", sessions=self.broker.statistics().sessions)

    def _log_ready(self) -> None:
        """Log that the edge is ready.

        An edge of a site is ready once the site's log has its announcement, so that tools can find it.
        """
        if self._ready_by is None:
            return
        self._ready_by = None
        self._log.info(
            "edge ready",
            name=self._settings.edge.name,
            **self._addresses,
            durability=self._settings.storage.durability.value,
            site=self._settings.site.log.name or None,
            sessions=self.broker.statistics().sessions,
        )

    def _mqtt_listeners(self) -> Iterator[tuple[ListenerSettings, Wrapper]]:
        return zip(self._settings.mqtt.listen, self._wrappers, strict=True)

    def _listen(self, address: str, on_accept: OnAccept) -> str:
        """Accept connections at an address; return it with the port that was bound."""
        host, port = host_and_port(address)
        try:
            listener = TcpAcceptor(self._event_loop, listen_at(host, port), on_accept)
        except OSError as error:
            raise cannot_listen(address, error) from None
        self._listeners.append(listener)
        return listener.address

    def _watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event_loop.call_soon(self._begin_stop))
        signal.signal(signal.SIGHUP, lambda *_: self._event_loop.call_soon(self._reload))

    def _tick(self, now: Instant) -> None:
        self._committer.on_timer(now)
        if self._site is not None:
            self._site.tick(now)
        self._log.log_suppressed()
        if self._ready_by is not None and self._stops_at is None and monotonic() > self._ready_by:
            self._log.warning("the site's log has not confirmed the announcement of this edge", after_s=ANNOUNCED_S)
            self._log_ready()
        if self._stops_at is not None and (not self.mqtt.connections or monotonic() > self._stops_at):
            self._event_loop.stop()

    def _begin_stop(self, now: Instant) -> None:
        """Accept no new connections, and disconnect all clients."""
        if self._stops_at is not None:
            return
        self._log.info("edge stops", connections=len(self.mqtt.connections))
        self._stops_at = monotonic() + SHUTDOWN_S
        self._monitoring.is_stopping = True
        for listener in self._listeners:
            listener.close()
        self.mqtt.shut_down()
        if self._udp is not None:
            self._udp.listener.shut_down(now)
        self._committer.commit(now)

    def _reload(self, now: Instant) -> None:
        """Read certificates, users and rules again; if one of them is invalid, nothing changes."""
        try:
            settings = self._read_again()
            users = read_users(settings)
            rules = read_rules(settings, users)
            contexts = read_contexts(settings.mqtt.listen)
        except StartFault as fault:
            self._log.warning("reload failed", reason=str(fault))
            return
        self._committer.commit(now)  # messages of this tick were delivered under the former rules
        for wrapper in self._wrappers:
            wrapper.reload(contexts)
        ended = self._password_checker.use(users)
        expelled = self.broker.expel_users(ended)
        self.mqtt.deny_waiting(ended, now)
        revoked = self.broker.use_rules(rules)
        self._apply_plausibility(settings)
        self._log.info(
            "reloaded certificates, users and rules",
            users_ended=len(ended),
            sessions_of_ended_users=expelled,
            **_fields_of(revoked),
        )


def _fields_of(revoked: RevokedRights) -> dict[str, int]:
    return {
        "sessions_with_fewer_rights": revoked.sessions,
        "subscriptions_ended": revoked.subscriptions,
        "messages_dropped": revoked.messages,
    }


def _mqtt_settings(settings: Settings) -> MqttSettings:
    mqtt = settings.mqtt
    return MqttSettings(
        mqtt.topic_alias_max,
        mqtt.packet_bytes_max,
        mqtt.receive_max,
        mqtt.keep_alive_s_max,
        mqtt.handshake_s_max,
        settings.limits.mqtt,
    )


def _allow_many_files() -> None:
    """Raise the limit of open files, and so of connections, to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _tune_garbage_collection() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
