"""Five thousand vehicles on one map: the script time per frame, and whether the page keeps up. Rendering is in software here,
so only the time of the page's own scripts is meaningful."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, ViewportSize

from live.dashboard.conftest import WEST, open_map, wait_until
from live.dashboard.maps import MapProcess, map_of
from live.federation.deployment import Deployment, deployment_in
from milepost.eventlog.log import Entry
from milepost.model.pipeline_records import REPORTS
from milepost.model.site_records import EdgeRef
from milepost.wire.records import ReportRecord, reports_to_record

VEHICLES: Final = 5_000
BATCH: Final = 1_000
"""Vehicles that report every fifth of a second: each of them once a second."""
SCRIPT_MS_MAX: Final = 16.0
"""Time per frame at 60 frames a second."""
SHARE_MAX: Final = 0.5
"""Maximum share of the time that the page's scripts may run."""
SIZE: Final[ViewportSize] = {"width": 1280, "height": 800}
MEASURED_MS: Final = 6_000
EDGE: Final = EdgeRef("north", "west")


@contextmanager
def reporting(deployment: Deployment) -> Iterator[None]:
    """Append reports of circling vehicles to the log, as edges do."""
    stopped = threading.Event()

    def append_reports() -> None:
        names = np.array([f"taxi-{number}" for number in range(VEHICLES)])
        radii, starts = np.linspace(0.002, 0.02, VEHICLES), np.linspace(0, 60, VEHICLES)
        for step in range(10_000):
            if stopped.wait(0.2):
                return
            rows = slice(step % 5 * BATCH, step % 5 * BATCH + BATCH)
            angle = starts[rows] + step * 0.01
            latitudes, longitudes = WEST.latitude + radii[rows] * np.cos(angle), WEST.longitude + radii[rows] * np.sin(angle)
            headings = np.degrees(angle + np.pi / 2) % 360
            nothing = np.zeros(BATCH, np.uint16)
            seen_at = np.full(BATCH, time.time_ns())
            columns = (seen_at, latitudes, longitudes, headings, np.full(BATCH, 14.0), nothing, nothing)
            value = reports_to_record(ReportRecord(EDGE, names[rows].tolist(), *columns))
            deployment.log("north").append([Entry(REPORTS, str(EDGE), value)])

    thread = threading.Thread(target=append_reports)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def test_the_page_keeps_up_with_five_thousand_vehicles(tmp_path: Path, browser: Browser) -> None:
    with deployment_in(tmp_path) as deployment:
        deployment.add_site("north")
        deployment.log("north").make(REPORTS)
        with reporting(deployment), map_of(deployment) as served, browser.new_context(viewport=SIZE) as context:
            took, seconds, share = measure(context.new_page(), served)
    print(f"{len(took)} frames in {seconds:.1f} s; vehicles {np.median(took):.2f} ms each, all script {share:.0%} of the time")
    assert seconds > MEASURED_MS / 1_000 / 2, "diffs stopped coming"
    assert np.median(took) < SCRIPT_MS_MAX
    assert share < SHARE_MAX


def measure(page: Page, served: MapProcess) -> tuple[list[float], float, float]:
    """Return the time each frame took for vehicles, the seconds covered by diffs, and the share of them in which scripts ran."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    with open_map(page, served):
        wait_until(page, f"milepost.scene().names.size === {VEHICLES}")
        page.evaluate("milepost.city.fleet.render_ms.length = 0")
        before_ms, script_s = page.evaluate("milepost.scene().at"), script_seconds(session)
        page.wait_for_timeout(MEASURED_MS)
        took = page.evaluate("milepost.city.fleet.render_ms")
        seconds = (page.evaluate("milepost.scene().at") - before_ms) / 1_000
        return took, seconds, (script_seconds(session) - script_s) / seconds


def script_seconds(session: CDPSession) -> float:
    """Return the total run time of the page's scripts so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ScriptDuration"))
