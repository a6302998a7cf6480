"""A small city shared by all tests, its map, and a browser that shows it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from live.dashboard.drivers import Driver, Traffic, ring, traffic
from live.dashboard.maps import MapProcess, map_of
from live.federation.deployment import Deployment, deployment_in
from milepost.model.places import Place
from parts import need

WEST: Final = Place(40.7608, -111.905)
EAST: Final = Place(40.7608, -111.875)
RADIUS_M: Final = 1_700
OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
WAIT_S: Final = 60.0


@dataclass
class City:
    """Two edges, drivers, and the map of both."""

    deployment: Deployment
    traffic: Traffic
    map: MapProcess
    drivers: list[Driver] = field(default_factory=list)

    @property
    def west_url(self) -> str:
        return f"mqtt://127.0.0.1:{self.deployment.edges['west'].tcp}"


@pytest.fixture(scope="session")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    """Edges west and east of one site; car-0 to car-11 in the west, bus-0 to bus-3 in the east."""
    roads = Path(__file__).parent / "roads.geojson"
    with deployment_in(tmp_path_factory.mktemp("city")) as deployment, traffic() as drivers:
        deployment.add_site("north")
        for name, place in (("west", WEST), ("east", EAST)):
            deployment.add_edge("north", name, coverage=f"circle {place.latitude},{place.longitude} {RADIUS_M}")
        with map_of(deployment, more=f'roads = "{roads}"') as served:
            found = City(deployment, drivers, served)
            urls = [f"mqtt://127.0.0.1:{deployment.edges[name].tcp}" for name in ("west", "east")]
            some = [*ring(WEST, 12, urls), *ring(EAST, 4, urls[::-1], prefix="bus")]
            found.drivers = [drivers.add(one) for one in some]
            yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = need("chromium", debian="chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield browser
        browser.close()


def wait_until(page: Page, script: str, *, within_s: float = WAIT_S) -> None:
    """Poll the page until *script* is true; Playwright's own wait_for_function is blocked by the content security policy."""
    until = time.monotonic() + within_s
    while not page.evaluate(script):
        assert time.monotonic() < until, f"never true: {script}"
        page.wait_for_timeout(50)


@contextmanager
def open_map(page: Page, served: MapProcess) -> Iterator[Page]:
    """Open the map and wait for vehicles; at the end, assert no console errors and no requests to other hosts."""
    errors: list[str] = []
    requested: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda fault: errors.append(str(fault)))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(served.url)
    wait_until(page, "window.milepost?.scene().names.size > 0 && Boolean(milepost.city.map.getLayer('fleet'))")
    yield page
    own = (served.url, "blob:", "data:")
    assert [url for url in requested if not url.startswith(own)] == []
    assert [text for text in errors if "GPU stall" not in text and "GL Driver" not in text] == []


@pytest.fixture
def page(browser: Browser, city: City) -> Iterator[Page]:
    """The map in a window; a console error fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    with open_map(context.new_page(), city.map) as page:
        yield page
    context.close()
