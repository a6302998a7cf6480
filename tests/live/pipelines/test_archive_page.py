"""The page about the archive: its examples are run as written, over a real archive."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from live.pipelines.archives import NOON_US, append_batch, delivery, instant, message, report
from live.pipelines.test_coverage import ADDRESS
from milepost.config.settings import settings_from
from milepost.pipelines.archive.compaction import compact
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS, UNPUBLISHED
from milepost.pipelines.search import archive_query_from_json

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "how-to" / "archive.md").read_text()
BACKTEST: Final = (ROOT / "docs" / "reference" / "backtest.md").read_text()
SECOND: Final = 1_000_000
WAIT_S: Final = 500


def fences(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def made(spark: SparkSession, folder: Path) -> None:
    """Write an archive with a collision that seven endpoints report, a message to an area, and an unpublished message."""
    crash = [message(n, NOON_US + (n + 1) * SECOND, source=f"car-{n}", number=n) for n in range(7)]
    warned = message(7, NOON_US + 20 * SECOND, source="@service/incidents", number=17, topic="Alert/Collision", address=ADDRESS)
    append_batch(spark, folder, MESSAGES, [*crash, warned, message(8, source="car-1", number=99)])
    append_batch(spark, folder, REPORTS, [report(n, NOON_US + n * SECOND, endpoint=f"car-{n}") for n in range(7)])
    compact(spark, folder, now=instant(NOON_US + 3 * 3_600 * SECOND))
    append_batch(spark, folder, UNPUBLISHED, [("car-1", "99", NOON_US + SECOND, 9, warned[-1])])
    append_batch(
        spark, folder, DELIVERIES, [delivery(0, NOON_US + 21 * SECOND, "car-0", "sent", source="@service/incidents", number=17)]
    )


COMMANDS: Final = """
import shlex, sys
from milepost.cli.main import main
for line in sys.stdin.read().splitlines():
    assert main(shlex.split(line)[1:]) == 0, line
    print("done", flush=True)
"""


def run(code: str, folder: Path, typed: str = "") -> str:
    """Run Python code and return its output."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, input=typed, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_of_the_archive_and_backtest_pages_run(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "data" / "pipelines" / "archive")
    (rule,) = fences("toml", BACKTEST)
    assert [kind.name for kind in settings_from(rule, source="page", folder=tmp_path).incidents.kinds] == ["Collision"]
    for name, text in (("rule", rule), ("old", rule.replace("reports >= 5", "reports >= 50")), ("new", rule)):
        (tmp_path / f"{name}.toml").write_text(text)
    (code,) = fences("python")
    printed = run(code, tmp_path)
    assert re.search(r"2030-03-17 *│ *18 *│ *7 *│ *7", printed)
    assert re.search(r"Collision +7\n", printed)
    alone, both = fences("sh", BACKTEST)[0].splitlines()
    lines = [line for text in fences("sh") for line in text.splitlines()]
    outputs = run(COMMANDS, tmp_path, "\n".join([*lines, f"{alone} --json", both])).split("done\n")
    files, compacted, found, endpoints, coverage, alerts, compared, _ = outputs
    assert len(files.splitlines()) == 1
    assert "0 hours expired" in compacted
    assert (json.loads(found)["found"], len(json.loads(found)["messages"])) == (7, 2)
    assert {json.loads(line)["endpoint"] for line in endpoints.splitlines()} == {f"car-{n}" for n in range(7)}
    assert coverage.splitlines()[-1] == "7 endpoints inside: 1 received it, 6 did not; 0 others in delivery records"
    assert "<svg" in (tmp_path / "proof.html").read_text()
    phases = [json.loads(line)["message"]["fields"]["phase"] for line in alerts.splitlines()]
    assert phases == ["early", "cleared"]
    assert compared.splitlines()[-1] == "1 incidents: 0 only in A, 1 only in B, 0 in both"
    assert 'class="other"><circle' in (tmp_path / "both.html").read_text()


def test_the_queries_of_the_page_are_valid() -> None:
    (text,) = fences("queries")
    assert len([archive_query_from_json(one, "query", instant(NOON_US)) for one in json.loads(text)]) == 2
