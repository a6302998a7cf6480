"""Every example in the documents is run."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks_of, every_block
from milepost.config.settings import Settings, settings_from
from milepost.incidents import Incidents
from milepost.model import Circle, EndpointId, Instant, MessageId, Place, Reason, SubscriptionId, parse_query
from milepost.model.incidents import EVENT_KINDS
from milepost.pipelines.records import DELIVERIES, REPORTS
from milepost.wire.geojson import area_from_geojson
from milepost.wire.incidents import cell_from_json, conditions_to_json
from milepost.wire.json_form import from_json
from milepost.wire.records import reputation_from_record
from milepost.wire.requests import (
    Service,
    message_from_json,
    report_from_json,
    service_at,
    subscription_from_json,
    unsubscription_from_json,
)
from milepost.wire.times import instant_from_text, time_window_from_text
from milepost.wire.user_properties import report_from_properties, subscription_from_properties, words_from_properties
from milepost.wire.wkt import area_from_wkt
from milepost_experiments.simulator import sumo

NOON = Instant(1_900_000_000_000_000_000 // 86_400_000_000_000 * 86_400_000_000_000 + 43_200_000_000_000)

TRUCK = EndpointId("truck-7")
SERVICES: dict[Service, Callable[[bytes], object]] = {
    Service.REPORT: lambda payload: report_from_json(payload, TRUCK, NOON),
    Service.SUBSCRIBE: lambda payload: subscription_from_json(payload, TRUCK, NOON),
    Service.UNSUBSCRIBE: unsubscription_from_json,
    Service.PUBLISH: lambda payload: message_from_json(payload, TRUCK, NOON, MessageId(1)),
}


def properties(text: str) -> tuple[tuple[str, str], ...]:
    """User properties, one `name: value` a line."""
    return tuple((name, value) for name, _, value in (line.partition(": ") for line in text.splitlines()))


def request(text: str) -> object:
    """A topic in the first line, then what is published to it."""
    topic, _, payload = text.partition("\n")
    return SERVICES[service_at(topic)](payload.encode())


def record(text: str) -> object:
    """Records of the log, each as its readers want it."""
    for line in text.replace("\n ", " ").splitlines():
        found = json.loads(line)
        match found["type"]:
            case "reputation":
                assert reputation_from_record(line.encode()).endpoint == found["endpoint"]
            case "reports" | "deliveries":
                wanted = {"reports": REPORTS, "deliveries": DELIVERIES}[found["type"]]
                assert set(found) == {column.split()[0] for column in wanted.split(",")} - {"_corrupt"}
            case kind:
                written = (ROOT / "src" / "milepost" / "pipelines" / "positions.py").read_text()
                assert [name for name in (kind, *found) if name != "type" and not re.search(rf"\b{name}\b", written)] == []
    return text


def conditions(text: str) -> object:
    """The beginning of an answer to "what is going on around here?": what it shows is what is written."""
    shown = json.loads(text.replace(", …}", "}"))
    incidents = Incidents(EVENT_KINDS)
    (cell,) = blocks_of("docs/reference/incidents.md", "cell")
    assert incidents.take(cell_from_json(cell.text.encode())) is None
    at = instant_from_text(shown["at"], NOON)
    around = incidents.around(Circle(Place(40.76, -111.89), 15_000_000), at)
    told = {kind["kind"]: kind for kind in json.loads(conditions_to_json(around, at))["kinds"]}
    for kind in shown["kinds"]:
        assert set(kind) <= set(told[kind["kind"]]) | {"bin"}
    assert all(set(kind["bin"]) <= set(told[kind["kind"]]["bin"]) for kind in shown["kinds"] if "bin" in kind)
    return shown


def reply(text: str) -> object:
    """Answers on $milepost/reply: refusals are those of the list of reasons."""
    refusals = [found["refused"] for found in map(json.loads, text.splitlines()) if not found["ok"]]
    assert [(one["number"], one["advice"]) for one in refusals] == [
        (Reason[one["name"]], Reason[one["name"]].advice) for one in refusals
    ]
    return refusals


READERS: dict[str, Callable[[str], object]] = {
    "query": parse_query,
    "geojson": lambda text: area_from_geojson(json.loads(text)),
    "wkt": area_from_wkt,
    "time_window": lambda text: time_window_from_text(text, NOON),
    "json": lambda text: from_json(text.encode()),
    "publishing": lambda text: words_from_properties(properties(text), sender=TRUCK, now=NOON),
    "subscribing": lambda text: subscription_from_properties(
        "road/#", properties(text), owner=TRUCK, qos=1, number=SubscriptionId(1), now=NOON
    ),
    "connecting": lambda text: report_from_properties(properties(text), sender=TRUCK, now=NOON),
    "service": request,
    "toml": lambda text: settings_from(text, source="page", folder=Path()) != Settings() or None,
    "record": record,
    "conditions": conditions,
    "reply": reply,
}
WHOLE = {"json", "publishing", "subscribing", "connecting", "service", "toml", "record", "conditions", "reply"}
"""Languages in which an example is all that stands between the fences; in the others it is a line."""


def examples() -> list[tuple[str, str, str]]:
    """Page, language and text of each example in a language that can be read."""
    found = []
    for block in every_block():
        if block.language in WHOLE:
            found.append((block.page, block.language, block.text))
        elif block.language in READERS:
            found += [(block.page, block.language, line) for line in block.text.splitlines()]
    return found


@pytest.mark.parametrize(("page", "language", "text"), examples())
def test_example_is_understood(page: str, language: str, text: str) -> None:
    assert READERS[language](text) is not None


def test_every_language_has_an_example() -> None:
    assert {language for _, language, _ in examples()} == set(READERS)


@pytest.mark.parametrize("page", ["docs/what-works.md", "docs/reference/roads.md"])
def test_python_on_the_page_runs(page: str, tmp_path: Path) -> None:
    """Beside a file with the roads of a town."""
    shutil.copy(sumo.home() / "tools" / "game" / "DRT" / "osm.net.xml", tmp_path / "town.net.xml")
    codes = [block.text for block in blocks_of(page, "python")]
    assert codes
    for code in codes:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=60)
