"""The pages for operators: every limit with its default, every metric, and valid TOML."""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest

from docs.follower import Follower, following
from docs.pages import ROOT, blocks_of, commands_of
from milepost.broker.limits import BrokerLimits
from milepost.config.settings import MqttListenerSettings, Settings, settings_from
from milepost.config.udp_settings import UdpListenerSettings
from milepost.federation.limits import SiteLimits
from milepost.listeners.limits import MqttLimits
from milepost.listeners.udp.settings import UdpLimits
from milepost.vetting.access import BUILT_IN
from milepost.vetting.reports import ReportLimits

PAGE = "docs/how-to/run-an-edge.md"
LIMITS = (ROOT / "docs" / "reference" / "limits.md").read_text()
OPERATING = (ROOT / PAGE).read_text()
METRICS_SOURCE = "".join(
    (ROOT / "src" / "milepost" / "runtime" / name).read_text() for name in ("edge_metrics.py", "membership.py", "monitoring.py")
)

NO_LIMITS = {"listen", "address", "encryption", "cells", "discovery", "limits"}
"""Keys of the same tables that are no limits."""

ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def written(value: object) -> str:
    """Format a default as on the page."""
    return f'"{value.value}"' if isinstance(value, Enum) else f"{value:,}"


def read(text: str) -> Settings:
    return settings_from(text, source="page", folder=Path())


def test_the_page_has_every_limit_once_with_its_default() -> None:
    parts = (
        BrokerLimits(),
        MqttLimits(),
        MqttListenerSettings(),
        UdpListenerSettings(),
        UdpLimits(),
        ReportLimits(),
        SiteLimits(),
    )
    limits = [(one.name, getattr(part, one.name)) for part in parts for one in fields(part) if one.name not in NO_LIMITS]
    defaults = [(name, written(value)) for name, value in limits]
    assert len(defaults) > 50
    assert [(key, value.strip()) for key, value in ROW.findall(LIMITS)] == defaults


def test_the_page_shows_the_built_in_access_rules() -> None:
    assert BUILT_IN in [read(text).access.rules for text in TOML.findall(OPERATING)]


def test_every_metric_is_documented() -> None:
    metrics = set(re.findall(r'"(milepost_\w+)"', METRICS_SOURCE))
    assert len(metrics) > 10
    assert set(re.findall(r"`(milepost_\w+)`", OPERATING)) == metrics


def test_every_event_of_a_site_is_documented() -> None:
    sources = (ROOT / "src" / "milepost" / "federation").glob("*.py")
    events = {name for source in sources for name in re.findall(r'state\.counts\["(\w+)"\]', source.read_text())}
    assert len(events) > 10
    table = OPERATING.split("| `event` of `milepost_site_events_total` |")[1].split("\n\n")[0]
    assert events <= set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]+\|", table, re.MULTILINE))))


def test_an_edge_runs_with_the_commands_of_the_page(reader: Follower) -> None:
    (reader.folder / "milepost.toml").write_text('[edge]\nname = "edge-7"\n')
    plain, check = [command for block in blocks_of(PAGE, "sh")[:1] for command in commands_of(block.text)][::2]
    assert plain == "milepost edge run"
    reader.type(plain)
    reader.stop()
    reader.type(check)
    reader.type("milepost edge run --config milepost.toml")
    refused = "mosquitto_pub -V 5 -i truck-17 -q 1 -t road/i80 -m x -D publish user-property milepost-tga ice || true"
    reader.type(refused)
    ready, refusal = blocks_of(PAGE, "log")[0].text.splitlines()
    log = reader.terminals[-2].text().splitlines()
    assert [fields_of(line) for line in log if "edge ready" in line] == [fields_of(ready)]
    assert [fields_of(line) for line in log if "message refused" in line] == [fields_of(refusal)]


def fields_of(line: str) -> list[str]:
    """Return the field names of a log line, and the detail of a refusal."""
    return re.findall(r"(\w+)=", line) + re.findall(r'detail=".*"', line)


def test_a_truck_connects_with_the_certificates_of_the_page(reader: Follower) -> None:
    authority, clients, publish = [block for block in blocks_of(PAGE, "sh") if "openssl" in block.text or "8883" in block.text]
    (settings,) = [block.text for block in blocks_of(PAGE, "toml") if "tls/edge.pem" in block.text]
    (reader.folder / "edge.toml").write_text(settings)
    (reader.folder / "tls").mkdir()
    with following(reader.folder / "tls") as ca_folder:
        ca_folder.follow([authority, clients])
    reader.type("milepost edge run --config edge.toml")
    reader.follow([publish])
    assert "client=auto-" in reader.terminals[0].text()
    assert "user=truck-17" in reader.terminals[0].text()


def test_a_user_is_added_and_removed_by_the_commands_of_the_page(reader: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "correct horse")
    (users,) = [block for block in blocks_of(PAGE, "sh") if "passwd" in block.text]
    add, remove = commands_of(users.text)
    reader.type(add)
    assert (reader.folder / "users").read_text().startswith("ada:")
    reader.type(remove)
    assert "ada" not in (reader.folder / "users").read_text()


def test_an_operator_alerts_a_vehicle_with_the_commands_of_the_page(reader: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_PASSWORD", "correct horse")
    for command in ("init ca", "issue ca edge-7 --edge", "issue ca car-4 --role vehicle"):
        reader.type(f"milepost trust {command}")
    reader.type('printf %s "$MILEPOST_PASSWORD" | milepost passwd users control-room --stdin')
    before, _, after = OPERATING.partition("\n## Send an alert as an operator\n")
    first, lines = before.count("\n"), after.partition("\n## ")[0].count("\n")
    used = [block for block in blocks_of(PAGE) if first < block.line <= first + lines]
    assert [block.language for block in used] == ["sh", "toml", "sh", "sh", "sh", "sh", "printed"]
    reader.follow(used)
    (alert,) = [block.text for block in used if "--to-area" in block.text]
    reader.type(alert.replace(" --sign", ""))
    reader.wait_printed("milepost: a message on Alert/Closure was suppressed: 268 SIGNATURE_INVALID: …")


def test_no_other_block_of_commands_is_on_the_page() -> None:
    assert len(blocks_of(PAGE, "sh")) == 10
