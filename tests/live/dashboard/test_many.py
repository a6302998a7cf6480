"""Five thousand vehicles on one map: what the page spends on them, and that it keeps up. Graphics are done by the processor here,
so only the time of the page's own script says anything."""

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
from live.federation.town import Town, town_in
from milepost.eventlog.log import Entry
from milepost.model.pipeline_records import REPORTS
from milepost.model.sites import EdgeRef
from milepost.wire.records import Reports, reports_to_record

VEHICLES: Final = 5_000
A_TURN: Final = 1_000
"""So many report every fifth of a second: each of them once a second."""
SCRIPT_MS_MAX: Final = 16.0
"""At sixty pictures a second all of a picture has so long."""
SHARE_MAX: Final = 0.5
"""Of all time, what the page's script may take."""
SIZE: Final[ViewportSize] = {"width": 1280, "height": 800}
LOOKED_MS: Final = 6_000
EDGE: Final = EdgeRef("north", "west")


@contextmanager
def reporting(town: Town) -> Iterator[None]:
    """Reports as edges write them, of vehicles that go round."""
    ends = threading.Event()

    def tell() -> None:
        names = np.array([f"taxi-{number}" for number in range(VEHICLES)])
        radii, starts = np.linspace(0.002, 0.02, VEHICLES), np.linspace(0, 60, VEHICLES)
        for turn in range(10_000):
            if ends.wait(0.2):
                return
            rows = slice(turn % 5 * A_TURN, turn % 5 * A_TURN + A_TURN)
            angle = starts[rows] + turn * 0.01
            latitudes, longitudes = WEST.latitude + radii[rows] * np.cos(angle), WEST.longitude + radii[rows] * np.sin(angle)
            headings = np.degrees(angle + np.pi / 2) % 360
            nothing = np.zeros(A_TURN, np.uint16)
            told_at = np.full(A_TURN, time.time_ns())
            columns = (told_at, latitudes, longitudes, headings, np.full(A_TURN, 14.0), nothing, nothing)
            value = reports_to_record(Reports(EDGE, names[rows].tolist(), *columns))
            town.log("north").append([Entry(REPORTS, str(EDGE), value)])

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_the_page_keeps_up_with_five_thousand_vehicles(tmp_path: Path, browser: Browser) -> None:
    with town_in(tmp_path) as town:
        town.add_site("north")
        town.log("north").make(REPORTS)
        with reporting(town), map_of(town) as served, browser.new_context(viewport=SIZE) as context:
            took, seconds, share = looked_at(context.new_page(), served)
    print(f"{len(took)} pictures in {seconds:.1f} s; vehicles {np.median(took):.2f} ms each, all script {share:.0%} of the time")
    assert seconds > LOOKED_MS / 1_000 / 2, "diffs stopped coming"
    assert np.median(took) < SCRIPT_MS_MAX
    assert share < SHARE_MAX


def looked_at(page: Page, served: MapProcess) -> tuple[list[float], float, float]:
    """What each picture took for vehicles, for how many seconds there were diffs, and the share of them that scripts ran."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    with open_map(page, served):
        wait_until(page, f"milepost.scene().names.size === {VEHICLES}")
        page.evaluate("milepost.city.fleet.took_ms.length = 0")
        before_ms, script_s = page.evaluate("milepost.scene().at"), script_seconds(session)
        page.wait_for_timeout(LOOKED_MS)
        took = page.evaluate("milepost.city.fleet.took_ms")
        seconds = (page.evaluate("milepost.scene().at") - before_ms) / 1_000
        return took, seconds, (script_seconds(session) - script_s) / seconds


def script_seconds(session: CDPSession) -> float:
    """How long all scripts of the page ran so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ScriptDuration"))
