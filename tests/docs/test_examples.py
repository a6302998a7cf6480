"""Every example in the documents is parsed by the reader of its format."""

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
from milepost.pipelines.records import DELIVERIES_SCHEMA, REPORTS_SCHEMA
from milepost.wire.geojson import area_from_geojson
from milepost.wire.incidents import cell_from_json, conditions_to_json
from milepost.wire.json_form import from_json
from milepost.wire.records import reputation_from_record
from milepost.wire.requests import (
    RequestKind,
    message_from_json,
    report_from_json,
    request_kind_at,
    subscription_from_json,
    unsubscription_from_json,
)
from milepost.wire.times import instant_from_text, time_window_from_text
from milepost.wire.user_properties import parse_message_properties, report_from_properties, subscription_from_properties
from milepost.wire.wkt import area_from_wkt
from milepost_experiments.simulator import sumo

NOON = Instant(1_900_000_000_000_000_000 // 86_400_000_000_000 * 86_400_000_000_000 + 43_200_000_000_000)

TRUCK = EndpointId("truck-7")
SERVICES: dict[RequestKind, Callable[[bytes], object]] = {
    RequestKind.REPORT: lambda payload: report_from_json(payload, TRUCK, NOON),
    RequestKind.SUBSCRIBE: lambda payload: subscription_from_json(payload, TRUCK, NOON),
    RequestKind.UNSUBSCRIBE: unsubscription_from_json,
    RequestKind.PUBLISH: lambda payload: message_from_json(payload, TRUCK, NOON, MessageId(1)),
}


def properties(text: str) -> tuple[tuple[str, str], ...]:
    """Parse user properties, one `name: value` a line."""
    return tuple((name, value) for name, _, value in (line.partition(": ") for line in text.splitlines()))


def request(text: str) -> object:
    """Parse a request: the topic in the first line, then the payload."""
    topic, _, payload = text.partition("\n")
    return SERVICES[request_kind_at(topic)](payload.encode())


def record(text: str) -> object:
    """Check records of the log against their readers."""
    for line in text.replace("\n ", " ").splitlines():
        found = json.loads(line)
        match found["type"]:
            case "reputation":
                assert reputation_from_record(line.encode()).endpoint == found["endpoint"]
            case "reports" | "deliveries":
                schemas = {"reports": REPORTS_SCHEMA, "deliveries": DELIVERIES_SCHEMA}[found["type"]]
                assert set(found) == {column.split()[0] for column in schemas.split(",")} - {"_corrupt"}
            case kind:
                written = (ROOT / "src" / "milepost" / "pipelines" / "positions.py").read_text()
                assert [name for name in (kind, *found) if name != "type" and not re.search(rf"\b{name}\b", written)] == []
    return text


def conditions(text: str) -> object:
    """Check the members of an abbreviated answer to a query for conditions."""
    shown = json.loads(text.replace(", …}", "}"))
    incidents = Incidents(EVENT_KINDS)
    (cell,) = blocks_of("docs/reference/incidents.md", "cell")
    assert incidents.add(cell_from_json(cell.text.encode())) is None
    at = instant_from_text(shown["at"], NOON)
    around = incidents.around(Circle(Place(40.76, -111.89), 15_000_000), at)
    actual = {kind["kind"]: kind for kind in json.loads(conditions_to_json(around, at))["kinds"]}
    for kind in shown["kinds"]:
        assert set(kind) <= set(actual[kind["kind"]]) | {"bin"}
    assert all(set(kind["bin"]) <= set(actual[kind["kind"]]["bin"]) for kind in shown["kinds"] if "bin" in kind)
    return shown


def reply(text: str) -> object:
    """Check answers on $milepost/reply against the list of reasons."""
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
    "publishing": lambda text: parse_message_properties(properties(text), sender=TRUCK, now=NOON),
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
"""Languages whose example is a whole block; in the others it is a line."""


def examples() -> list[tuple[str, str, str]]:
    """Return page, language and text of each example that has a reader."""
    found = []
    for block in every_block():
        if block.language in WHOLE:
            found.append((block.page, block.language, block.text))
        elif block.language in READERS:
            found += [(block.page, block.language, line) for line in block.text.splitlines()]
    return found


@pytest.mark.parametrize(("page", "language", "text"), examples())
def test_the_example_can_be_parsed(page: str, language: str, text: str) -> None:
    assert READERS[language](text) is not None


def test_every_language_has_an_example() -> None:
    assert {language for _, language, _ in examples()} == set(READERS)


@pytest.mark.parametrize("page", ["docs/what-works.md", "docs/reference/roads.md"])
def test_python_on_the_page_runs(page: str, tmp_path: Path) -> None:
    """The working folder has a road network."""
    shutil.copy(sumo.home() / "tools" / "game" / "DRT" / "osm.net.xml", tmp_path / "town.net.xml")
    codes = [block.text for block in blocks_of(page, "python")]
    assert codes
    for code in codes:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=60)
