"""`milepost dashboard run`: the live map of one or several sites."""

import asyncio
import json
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from time import time_ns
from typing import Any, Final

from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, cannot_listen, cannot_read
from milepost.config.settings import Settings
from milepost.dashboard.feed import Feed
from milepost.dashboard.pages import NOT_BUILT, Guard
from milepost.dashboard.scene import Scene
from milepost.dashboard.server import TICK_S, MapServer, Setup
from milepost.eventlog.log import Entry, Log, LogLost
from milepost.model.instants import Instant
from milepost.model.pipeline_records import PIPELINES
from milepost.runtime.pipeline_status import OLD_S, STATUS_FILE
from milepost.runtime.site_logs import RefusedRecords, request_messages
from milepost.runtime.site_view import open_site_logs
from milepost.runtime.structured_log import StructuredLog
from milepost.runtime.terminal import print_line

STATUS_S: Final = 1.0
STATUS_BYTES_MAX: Final = 1_000_000
ROADS_BYTES_MAX: Final = 256_000_000
_SHOWN: Final = ("state", "mode", "rows_per_s", "took_s", "lag", "fault")


def run(settings: Settings) -> int:
    """Serve the map until a signal; return the exit status."""
    logger = StructuredLog(settings.log.level, settings.log.line_format)
    with open_site_logs(settings, RefusedRecords(logger)) as logs:
        asyncio.run(Dashboard(settings, logs, logger).run())
    return 0


@dataclass(slots=True)
class Dashboard:
    """The process that serves the map."""

    settings: Settings
    logs: Mapping[str, Log]
    logger: StructuredLog

    async def run(self) -> None:
        """Serve until a signal."""
        own, logger = self.settings.dashboard, self.logger
        scene = Scene(self.settings.incidents.kinds, vehicles_max=own.vehicles_max)
        host, port = host_and_port(own.address)
        token = own.token or secrets.token_urlsafe(16)
        setup = Setup(tuple(self.logs), self.settings.incidents.kinds, own.history_minutes, self._roads())
        server = MapServer(scene, Guard(hosts_of(host, port, own.hosts), token), setup, self._append)
        if not server.pages.is_built:
            raise StartFault(NOT_BUILT)
        for site, log in self.logs.items():
            request_messages(log, site, PIPELINES, self.settings.pipelines.topics)
        try:
            listening = await server.listen(host, port)
        except OSError as error:
            raise cannot_listen(own.address, error) from None
        feed = Feed(scene, self.logs, lambda lost: _log_lost(logger, lost))
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        bound_host, bound_port = listening.sockets[0].getsockname()[:2]
        print_line(f"the map: http://{_in_url(bound_host)}:{bound_port}/")
        print_line(f"the token, required to publish: {token if not own.token else 'the one in the settings'}")
        logger.info("dashboard ready", sites=" ".join(self.logs), address=f"{bound_host}:{bound_port}")
        try:
            await self._tick_until(stop, server, scene)
        finally:
            await feed.close()
            listening.close()
            await listening.wait_closed()
            logger.info("dashboard stopped")

    async def _tick_until(self, stop: asyncio.Event, server: MapServer, scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        due, status_due = loop.time(), 0.0
        while not stop.is_set():
            if loop.time() >= status_due:
                scene.set_pipeline_metrics(await asyncio.to_thread(pipeline_status_in, self.settings.pipelines.folder))
                status_due = loop.time() + STATUS_S
            server.tick(Instant(time_ns()))
            due = max(due + TICK_S, loop.time())
            try:
                async with asyncio.timeout_at(due):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _append(self, site: str, entries: Sequence[Entry]) -> None:
        """Append entries, and return when the log has confirmed them."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish(fault: Exception | None) -> None:
            if done.cancelled():
                return
            if fault is None:
                done.set_result(None)
            else:
                done.set_exception(fault)

        def confirm(fault: Exception | None) -> None:
            loop.call_soon_threadsafe(finish, fault)

        self.logs[site].append(entries, confirm)
        await done

    def _roads(self) -> bytes | None:
        name = self.settings.dashboard.roads
        if not name:
            return None
        try:
            if Path(name).stat().st_size > ROADS_BYTES_MAX:
                raise StartFault(f"[dashboard] roads: {name} is larger than {ROADS_BYTES_MAX:,} bytes")
            roads = Path(name).read_bytes()
        except OSError as error:
            raise cannot_read(name, error) from None
        try:
            if json.loads(roads)["type"] != "FeatureCollection":
                raise StartFault(f"[dashboard] roads: {name} is not a GeoJSON FeatureCollection")
        except (ValueError, KeyError, TypeError):
            raise StartFault(f"[dashboard] roads: {name} is not GeoJSON") from None
        return roads


def hosts_of(host: str, port: int, more: Sequence[str]) -> frozenset[str]:
    """Return the accepted values of the Host header; the hosts of *more* may have a port."""
    names = {"localhost", "127.0.0.1", "[::1]", _in_url(host)}
    found = {f"{name}:{port}" for name in names} | {name.lower() for name in more}
    return frozenset(found | {f"{name.lower()}:{port}" for name in more} | (names if port == 80 else set()))


def pipeline_status_in(folder: str) -> dict[str, dict[str, Any]]:
    """Return the last status of each pipeline query, state "away" if it is too old; empty without a status file."""
    path = Path(folder) / STATUS_FILE
    try:
        if path.stat().st_size > STATUS_BYTES_MAX:
            return {}
        status = json.loads(path.read_bytes())
        is_old = (time_ns() - status["at_ns"]) / 1e9 > OLD_S
        rows = {one["name"]: {name: one[name] for name in _SHOWN} for one in status["queries"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: row | {"state": "away"} for name, row in rows.items()} if is_old else rows


def _in_url(host: str) -> str:
    try:
        return f"[{host}]" if ip_address(host).version == 6 else host
    except ValueError:
        return host


def _log_lost(logger: StructuredLog, lost: LogLost) -> None:
    logger.warning("records lost", reason=str(lost))
