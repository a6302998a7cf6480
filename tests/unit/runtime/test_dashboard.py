import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from milepost.config.errors import UsageFault
from milepost.config.settings import settings_from
from milepost.runtime.dashboard import hosts_of, pipeline_status_in

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "map.md").read_text()
QUERY = {
    "name": "hazards",
    "state": "running",
    "mode": "micro-batch",
    "rows_per_s": 5.0,
    "took_s": 0.1,
    "lag": 3,
    "fault": "",
    "batch": 9,
}


def written(folder: Path, **members: Any) -> str:
    status = {"at_ns": time.time_ns(), "queries": [QUERY]} | members
    (folder / "status.json").write_text(json.dumps(status))
    return str(folder)


def test_the_status_of_pipelines_is_read(tmp_path: Path) -> None:
    assert pipeline_status_in(str(tmp_path)) == {}
    found = pipeline_status_in(written(tmp_path))
    assert found["hazards"]["lag"] == 3
    assert "batch" not in found["hazards"]


def test_an_old_status_means_that_pipelines_are_down(tmp_path: Path) -> None:
    assert pipeline_status_in(written(tmp_path, at_ns=0))["hazards"]["state"] == "away"


@pytest.mark.parametrize("status", ["", "[]", "{}", '{"at_ns": "x", "queries": []}', '{"at_ns": 1, "queries": [{}]}'])
def test_an_invalid_status_file_is_ignored(tmp_path: Path, status: str) -> None:
    (tmp_path / "status.json").write_text(status)
    assert pipeline_status_in(str(tmp_path)) == {}


def test_accepted_hosts_are_the_listener_and_the_configured_names() -> None:
    hosts = hosts_of("0.0.0.0", 8470, ["Map.example.org"])
    assert {"127.0.0.1:8470", "localhost:8470", "map.example.org", "map.example.org:8470"} <= hosts
    assert "evil.example:8470" not in hosts
    assert "127.0.0.1" not in hosts
    assert "[::1]:8470" in hosts_of("::1", 8470, [])


def test_a_short_token_is_refused() -> None:
    with pytest.raises(UsageFault, match="token"):
        settings_from('[dashboard]\ntoken = "1234"', source="x", folder=Path())


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_the_settings_on_the_page_are_valid(text: str) -> None:
    assert settings_from(text, source="page", folder=Path()).dashboard.address
