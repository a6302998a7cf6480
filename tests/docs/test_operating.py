"""The pages for operators: every limit with its default, every figure, and TOML that an edge would take."""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest

from milepost.doors.limits import DoorLimits
from milepost.doors.udp.settings import UdpLimits
from milepost.edge.limits import Limits
from milepost.edge.site.limits import SiteLimits
from milepost.service.settings import Mqtt, Settings, settings_from
from milepost.service.udp_settings import Udp
from milepost.vetting.access import BUILT_IN
from milepost.vetting.reports import ReportLimits

ROOT = Path(__file__).parents[2]
LIMITS = (ROOT / "docs" / "reference" / "limits.md").read_text()
OPERATING = (ROOT / "docs" / "how-to" / "run-an-edge.md").read_text()
FIGURES = "".join((ROOT / "src" / "milepost" / "service" / name).read_text() for name in ("figures.py", "membership.py"))

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
    parts = (Limits(), DoorLimits(), Mqtt(), Udp(), UdpLimits(), ReportLimits(), SiteLimits())
    limits = [(one.name, getattr(part, one.name)) for part in parts for one in fields(part) if one.name not in NO_LIMITS]
    defaults = [(name, written(value)) for name, value in limits]
    assert len(defaults) > 50
    assert [(key, value.strip()) for key, value in ROW.findall(LIMITS)] == defaults


@pytest.mark.parametrize("text", TOML.findall(OPERATING))
def test_an_edge_would_take_the_example(text: str) -> None:
    assert read(text) != Settings()


def test_the_built_in_access_rules_are_shown_as_they_are() -> None:
    assert BUILT_IN in [read(text).access.rules for text in TOML.findall(OPERATING)]


def test_every_figure_is_explained() -> None:
    figures = set(re.findall(r'"(milepost_\w+)"', FIGURES))
    assert len(figures) > 10
    assert set(re.findall(r"`(milepost_\w+)`", OPERATING)) == figures
