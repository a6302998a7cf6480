"""The map in a real browser, over a city of real processes and clients: it shows their state, and hazards are published on it."""

import re
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any
from zlib import compress

import orjson
from playwright.sync_api import Browser, Locator, Page, expect

from live.dashboard.conftest import WEST, City, open_map, wait_until
from live.dashboard.maps import TOKEN, map_of
from live.federation.deployment import wait_until as wait
from milepost.client import Client
from milepost.eventlog.log import Entry
from milepost.incidents.engine import STATE, STATE_KEY
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle, Corridor
from milepost.model.incidents import Incident, IncidentId, TrackerState
from milepost.model.instants import Instant
from milepost.model.places import Place, moved
from milepost.model.priorities import Priority
from milepost.runtime.pipeline_status import QueryStatus, write_status
from milepost.wire.incidents import state_to_json

expect.set_options(timeout=30_000)


def alert_on(topic: str, area: Circle | Corridor) -> Callable[[Client], Coroutine[Any, Any, None]]:
    async def act(edge: Client) -> None:
        await edge.publish(topic, b"", to=ToArea(area), place=WEST, priority=Priority.SAFETY, qos=1, valid_for_s=300)

    return act


def alert_row(page: Page, title: str) -> Locator:
    return page.locator("#page-alerts button").filter(has_text=title).first


def point_of(page: Page, place: Place) -> tuple[float, float]:
    """Return the screen coordinates of a place."""
    found = page.evaluate(f"milepost.city.map.project([{place.longitude}, {place.latitude}])")
    return found["x"], found["y"]


def fill_form(page: Page, *, kind: str, radius_m: int, token: str) -> None:
    page.locator("#kind").select_option(kind)
    page.locator("#radius").fill(str(radius_m))
    page.locator("#token").fill(token)
    page.locator("dialog button.main").click()


def test_vehicles_edges_and_roads_are_on_the_map_and_move(city: City, page: Page) -> None:
    wait_until(page, f"milepost.scene().names.size === {len(city.drivers)}")
    expect(page.locator("#metrics")).to_contain_text(re.compile(rf"vehicles\s*{len(city.drivers)}"))
    expect(page.locator(".edge-label").filter(has_text="west")).to_have_text(re.compile(r"west · \d+"))
    wait_until(page, "milepost.city.map.querySourceFeatures('roads').length > 0")
    first = page.evaluate("milepost.scene().vehicleNamed('car-3').latitude")
    wait_until(page, f"milepost.scene().vehicleNamed('car-3').latitude !== {first}")


def test_an_alert_turns_vehicles_inside_red_and_its_proof_lists_the_receivers(city: City, page: Page) -> None:
    city.traffic.do(city.west_url, alert_on("Alert/Landslide", Circle(WEST, 2_500)))
    row = alert_row(page, "Landslide")
    expect(row).to_contain_text(re.compile(r"received by (\d+) of \1(?!\d)"))
    expect(page.locator("#news")).to_contain_text("New alert: Landslide")
    wait_until(page, "(milepost.scene().vehicleNamed('car-3').flags & 1) === 1")
    row.click()
    proof = page.locator("#detail tbody tr").filter(has=page.get_by_role("button", name="car-3", exact=True))
    expect(proof).to_contain_text(re.compile(r"acknowledged.*\d+ ms.*west"))
    expect(page.locator("#detail .legend")).to_contain_text("0 dropped")
    wait(lambda: "Alert/Landslide" in city.drivers[3].received, "the driver received it, too")


def test_vehicles_outside_the_area_are_not_in_the_proof(city: City, page: Page) -> None:
    area = Corridor((moved(WEST, 270, 300), moved(WEST, 90, 300)), 100)
    city.traffic.do(city.west_url, alert_on("Alert/Oil", area))
    alert_row(page, "Oil").click()
    expect(page.locator("#detail h2")).to_have_text("Oil")
    expect(page.locator("#detail .legend")).to_contain_text(re.compile(r"\d+ inside"))
    assert page.locator("#detail tbody").get_by_text("bus-").count() == 0
    wait_until(page, "milepost.city.map.querySourceFeatures('selected').length > 0")


def test_each_event_report_is_drawn_at_its_place(city: City, page: Page) -> None:
    async def act(edge: Client) -> None:
        for bearing in (0, 120, 240):
            await edge.publish("Object_Hazard", b"", place=moved(WEST, bearing, 50), qos=1)

    city.traffic.do(city.west_url, act, name="witness")
    wait_until(page, "[...milepost.scene().hazards.values()].filter((one) => one.kind === 'Obstacle').length === 3")


def test_a_vehicle_that_changes_its_edge_is_flagged_and_can_be_followed(city: City, page: Page) -> None:
    driver = city.drivers[1]
    city.traffic.change_edge(driver)
    wait_until(page, f"(milepost.scene().vehicleNamed('{driver.name}').flags & 4) === 4")
    page.locator("#tab-vehicles").click()
    page.locator("#lists input").fill(driver.name)
    page.locator("#page-vehicles li button").first.click()
    expect(page.locator("#detail h2")).to_have_text(driver.name)
    expect(page.locator("#detail .facts")).to_contain_text(re.compile(r"north/(east|west)"))
    wait_until(page, f"near(milepost.city.map.getCenter(), milepost.scene().vehicleNamed('{driver.name}'))" + NEAR)
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()


NEAR = """
function near(centre, vehicle) {
  return Math.hypot(centre.lng - vehicle.longitude, centre.lat - vehicle.latitude) < 0.002;
}"""


def test_a_hazard_published_by_a_click_reaches_the_vehicles_around_it(city: City, page: Page) -> None:
    page.locator("#publish").click()
    expect(page.locator("#hint")).to_contain_text("Click the place of the hazard")
    page.mouse.click(*point_of(page, WEST))
    fill_form(page, kind="Obstacle", radius_m=2_500, token="not the token at all")
    expect(page.locator("dialog .fault")).to_contain_text("wrong token")
    assert not any("Alert/Obstacle" in driver.received for driver in city.drivers)
    page.locator("#token").fill(TOKEN)
    page.locator("dialog button.main").click()
    expect(page.locator("dialog")).to_be_hidden()
    wait(lambda: "Alert/Obstacle" in city.drivers[5].received, "a driver is warned")
    expect(alert_row(page, "Obstacle")).to_contain_text(re.compile(r"active.*"))
    alert_row(page, "Obstacle").click()
    page.locator("#clear").click()  # the token is known by now
    expect(page.locator("#page-alerts button").filter(has_text="All clear: Obstacle").first).to_be_visible()
    wait(lambda: city.drivers[5].received.count("Alert/Obstacle") == 2, "the driver receives the all-clear")


def test_a_hazard_is_published_with_the_keyboard_alone(city: City, page: Page) -> None:
    page.locator("#publish").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    page.locator("#publish").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    fill_form(page, kind="Blocked", radius_m=20_000, token=TOKEN)
    wait(lambda: "Alert/Blocked" in city.drivers[7].received, "a driver is warned")


def test_every_control_is_reachable_with_the_tab_key(city: City, page: Page) -> None:
    page.locator(".skip").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    for part in ("tab-alerts", "publish", "slider", "live", "maplibregl-canvas"):
        assert any(part in one for one in reached), (part, reached)
    page.locator("#tab-alerts").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-incidents")).to_be_focused()
    expect(page.locator("#page-incidents")).to_be_visible()


def test_the_slider_shows_the_past_and_live_returns(city: City, page: Page) -> None:
    page.wait_for_timeout(3_000)
    page.locator("#slider").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    wait_until(page, "document.body.classList.contains('past')")
    wait_until(page, "milepost.scene().at <= Number(document.getElementById('slider').value)")
    past = page.evaluate("milepost.scene().at")
    assert page.evaluate("milepost.scene().names.size") > 0
    page.wait_for_timeout(1_000)
    assert page.evaluate("milepost.scene().at") == past, "a past scene does not change"
    page.locator("#live").click()
    wait_until(page, f"milepost.scene().at > {past} + 1500")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")


def test_on_a_phone_in_dark_mode_the_page_fits_and_is_dark(city: City, browser: Browser) -> None:
    phone = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark", is_mobile=True, has_touch=True)
    with phone, open_map(phone.new_page(), city.map) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#publish").bounding_box() is not None
        for part in ("#panel", "#time", "#publish"):
            box = page.locator(part).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
            assert box["y"] + box["height"] <= 844
        ground = page.evaluate("milepost.city.map.getPaintProperty('ground', 'background-color')")
        assert int(ground[1:3], 16) < 0x40, ground
        page.locator("#fold").tap()
        expect(page.locator("#lists")).to_be_hidden()
        page.emulate_media(color_scheme="light")
        wait_until(page, "milepost.city.map.getPaintProperty('ground', 'background-color') !== '" + ground + "'")


def test_incidents_and_pipelines_are_in_the_lists(city: City, page: Page) -> None:
    circle = Circle(WEST, 150.0)
    now = Instant(time.time_ns())
    incident = Incident(IncidentId("Collision-1-2-3"), "Collision", WEST, 150.0, 7, 4, 3.5, frozenset(), now, now, circle, now)
    state = orjson.dumps({"last": 1, "incidents": orjson.Fragment(state_to_json(TrackerState({}, (incident,))))})
    city.deployment.log("north").append([Entry(STATE, STATE_KEY, compress(state))])
    folder = city.deployment.folder / "pipelines"
    folder.mkdir(exist_ok=True)
    status = QueryStatus("hazards", "running", "micro-batch", 5, 1_234.0, 0.2, 9_000, 17, 0, 0, 0, "")
    write_status(str(folder), site="north", at_ns=now, queries=[status])
    page.locator("#tab-incidents").click()
    expect(page.locator("#page-incidents li")).to_contain_text("7 reports, 4 witnesses")
    wait_until(page, "milepost.city.map.querySourceFeatures('incidents').length > 0")
    page.locator("#tab-health").click()
    expect(page.locator("#page-health")).to_contain_text(re.compile(r"Spark: hazards.*1,234 rows/s · lag 17"))
    expect(page.locator("#page-health")).to_contain_text(re.compile(r"Site north"))


def test_the_page_reconnects_by_itself_when_the_map_is_restarted(city: City, browser: Browser) -> None:
    with browser.new_context() as context, ExitStack() as first:
        served = first.enter_context(map_of(city.deployment))
        page = context.new_page()
        page.goto(served.url)
        expect(page.locator("#link")).to_have_text("live")
        first.close()
        expect(page.locator("#link")).to_have_text("no connection")
        with map_of(city.deployment, port=served.port):
            expect(page.locator("#link")).to_have_text("live")
            wait_until(page, f"milepost.scene().names.size === {len(city.drivers)}")
