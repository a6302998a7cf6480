"""The pages for operators: every limit with its default, every figure, and TOML that an edge would take."""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest

from docs.following import Follower, following
from docs.pages import ROOT, blocks_of, commands_of
from milepost.broker.limits import Limits
from milepost.config.settings import Mqtt, Settings, settings_from
from milepost.config.udp_settings import Udp
from milepost.federation.limits import SiteLimits
from milepost.listeners.limits import MqttLimits
from milepost.listeners.udp.settings import UdpLimits
from milepost.vetting.access import BUILT_IN
from milepost.vetting.reports import ReportLimits

PAGE = "docs/how-to/run-an-edge.md"
LIMITS = (ROOT / "docs" / "reference" / "limits.md").read_text()
OPERATING = (ROOT / PAGE).read_text()
FIGURES = "".join(
    (ROOT / "src" / "milepost" / "runtime" / name).read_text() for name in ("edge_metrics.py", "membership.py", "monitoring.py")
)

NO_LIMITS = {"listen", "address", "seal", "cells", "finding", "limits"}
"""Keys of the same tables that say where, and how."""

ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def written(value: object) -> str:
    """A default as the page has it."""
    return f'"{value.value}"' if isinstance(value, Enum) else f"{value:,}"


def read(text: str) -> Settings:
    return settings_from(text, source="page", folder=Path())


def test_the_page_has_every_limit_once_with_its_default() -> None:
    parts = (Limits(), MqttLimits(), Mqtt(), Udp(), UdpLimits(), ReportLimits(), SiteLimits())
    limits = [(one.name, getattr(part, one.name)) for part in parts for one in fields(part) if one.name not in NO_LIMITS]
    defaults = [(name, written(value)) for name, value in limits]
    assert len(defaults) > 50
    assert [(key, value.strip()) for key, value in ROW.findall(LIMITS)] == defaults


def test_the_built_in_access_rules_are_shown_as_they_are() -> None:
    assert BUILT_IN in [read(text).access.rules for text in TOML.findall(OPERATING)]


def test_every_figure_is_explained() -> None:
    figures = set(re.findall(r'"(milepost_\w+)"', FIGURES))
    assert len(figures) > 10
    assert set(re.findall(r"`(milepost_\w+)`", OPERATING)) == figures


def test_an_edge_is_run_as_the_page_says(reader: Follower) -> None:
    (reader.folder / "milepost.toml").write_text('[edge]\nname = "edge-7"\n')
    plain, check = [command for block in blocks_of(PAGE, "sh")[:1] for command in commands_of(block.text)][::2]
    assert plain == "milepost edge run"
    reader.type(plain)
    reader.stop()
    reader.type(check)
    reader.type("milepost edge run --config milepost.toml")
    refused = "mosquitto_pub -V 5 -i truck-17 -q 1 -t road/i80 -m x -D publish user-property milepost-tga ice || true"
    reader.type(refused)
    ready, told = blocks_of(PAGE, "log")[0].text.splitlines()
    log = reader.terminals[-2].said().splitlines()
    assert [words(line) for line in log if "edge ready" in line] == [words(ready)]
    assert [words(line) for line in log if "message refused" in line] == [words(told)]


def words(line: str) -> list[str]:
    """The names of the facts in a line of the log, and what a peer did wrong."""
    return re.findall(r"(\w+)=", line) + re.findall(r'detail=".*"', line)


def test_the_certificates_of_the_page_let_a_truck_in(reader: Follower) -> None:
    authority, clients, publish = [block for block in blocks_of(PAGE, "sh") if "openssl" in block.text or "8883" in block.text]
    (settings,) = [block.text for block in blocks_of(PAGE, "toml") if "tls/edge.pem" in block.text]
    (reader.folder / "edge.toml").write_text(settings)
    (reader.folder / "tls").mkdir()
    with following(reader.folder / "tls") as desk:
        desk.follow([authority, clients])
    reader.type("milepost edge run --config edge.toml")
    reader.follow([publish])
    assert "client=auto-" in reader.terminals[0].said()
    assert "user=truck-17" in reader.terminals[0].said()


def test_a_user_comes_and_goes_as_the_page_says(reader: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "correct horse")
    (users,) = [block for block in blocks_of(PAGE, "sh") if "passwd" in block.text]
    add, remove = commands_of(users.text)
    reader.type(add)
    assert (reader.folder / "users").read_text().startswith("ada:")
    reader.type(remove)
    assert "ada" not in (reader.folder / "users").read_text()


def test_all_commands_of_the_page_are_among_these() -> None:
    assert len(blocks_of(PAGE, "sh")) == 5
