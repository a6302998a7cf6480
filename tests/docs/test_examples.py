"""Every example in the documents is run."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.model import EndpointId, Instant, MessageId, SubscriptionId, parse_query
from milepost.wire.asks import (
    Service,
    message_from_json,
    report_from,
    report_from_json,
    service_at,
    subscription_from,
    subscription_from_json,
    unsubscription_from_json,
    words_of_message,
)
from milepost.wire.geojson import area_from_geojson
from milepost.wire.json_form import from_json
from milepost.wire.times import frame_from_text
from milepost.wire.wkt import area_from_wkt

ROOT = Path(__file__).parents[2]
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


READERS: dict[str, Callable[[str], object]] = {
    "query": parse_query,
    "geojson": lambda text: area_from_geojson(json.loads(text)),
    "wkt": area_from_wkt,
    "frame": lambda text: frame_from_text(text, NOON),
    "json": lambda text: from_json(text.encode()),
    "publishing": lambda text: words_of_message(properties(text), sender=TRUCK, now=NOON),
    "subscribing": lambda text: subscription_from(
        "road/#", properties(text), owner=TRUCK, qos=1, number=SubscriptionId(1), now=NOON
    ),
    "connecting": lambda text: report_from(properties(text), sender=TRUCK, now=NOON),
    "service": request,
}
WHOLE = {"json", "publishing", "subscribing", "connecting", "service"}
"""Languages in which an example is all that stands between the fences; in the others it is a line."""

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str, str]]:
    """Page, language and text of each example in a language that can be read."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for language, text in FENCE.findall(page.read_text()):
            if language in WHOLE:
                found.append((page.name, language, text))
            elif language in READERS:
                found += [(page.name, language, line) for line in text.splitlines()]
    return found


@pytest.mark.parametrize(("page", "language", "text"), examples())
def test_example_is_understood(page: str, language: str, text: str) -> None:
    assert READERS[language](text) is not None


def test_every_language_has_an_example() -> None:
    assert {language for _, language, _ in examples()} == set(READERS)


def test_readme_shows_what_the_demo_prints() -> None:
    demo = [sys.executable, str(ROOT / "examples" / "first_match.py")]
    printed = subprocess.run(demo, capture_output=True, text=True, check=True).stdout
    shown = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) == 1
    for line in shown[0].splitlines():
        told = line if "µs" not in line else line.partition("(")[0]
        assert told in printed


def test_python_example_in_the_readme_runs() -> None:
    codes = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert codes
    for code in codes:
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
