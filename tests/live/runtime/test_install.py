"""The environment of `make edge`, built from the lock file: its size, and a broker that runs in it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from house.rules.tree import ROOT

BYTES_MAX = 150_000_000
START_S = 60


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edge") / "environment"
    subprocess.run(["make", f"EDGE={folder}", f"{folder}/synced"], cwd=ROOT, check=True, capture_output=True, timeout=500)
    return folder


@pytest.fixture
def edge(environment: Path, tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    settings = tmp_path / "milepost.toml"
    settings.write_text('http.address = ""\n')
    arguments = f"ARGS=--config {settings} --listen 127.0.0.1:0 --data {tmp_path / 'data'}"
    process = subprocess.Popen(
        ["make", f"EDGE={environment}", "edge", arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=START_S)


def test_an_edge_installs_in_150_mb_without_spark_sumo_and_a_browser(environment: Path) -> None:
    sizes = [file.lstat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink()]
    assert len(sizes) > 100
    assert sum(sizes) <= BYTES_MAX
    packages = {path.name for path in environment.glob("lib/python3*/site-packages/*")}
    assert "numpy" in packages
    assert not packages & {"pyspark", "sumo", "traci", "playwright", "pandas", "pyarrow", "matplotlib", "uv"}


def test_an_installed_edge_serves_clients(environment: Path, edge: "subprocess.Popen[str]") -> None:
    assert edge.stderr is not None
    ready = next(line for line in edge.stderr if "edge ready" in line)
    port = re.search(r"mqtt=127\.0\.0\.1:(\d+)", ready)
    assert port is not None
    command = [str(environment / "bin" / "milepost"), "pub", "-t", "a", "-m", "x", "--url", f"mqtt://127.0.0.1:{port[1]}"]
    subprocess.run(command, check=True, timeout=START_S)


@pytest.mark.parametrize(
    ("typed", "extra"),
    [
        (("demo", "--headless"), "experiments"),
        (("paper", "mercury", "--quick"), "experiments"),
        (("pipeline", "run", "all", "--config", "kafka.toml"), "spark"),
        (("pipeline", "search", "--archive", "."), "spark"),
        (("pipeline", "archive", "compact", "--archive", "."), "spark"),
        (("edge", "run", "--config", "kafka.toml"), "kafka"),
        (("incidents", "run", "--config", "roads.toml"), "roads"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(environment: Path, typed: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    (tmp_path / "kafka.toml").write_text('[site]\nname = "north"\nlog = "kafka"\naddress = "127.0.0.1:1"\n')
    (tmp_path / "roads.toml").write_text('[site]\nname = "north"\n[incidents]\nroads = "town.osm"\n')
    (tmp_path / "town.osm").touch()
    command = [str(environment / "bin" / "milepost"), *typed]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=START_S)
    assert done.returncode == 1
    assert f"needs the extra '{extra}', which is not installed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_wheel_has_every_file_of_both_packages(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--wheel", "--quiet", "--out-dir", tmp_path, ROOT], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    expected = {name.removeprefix("src/") for name in tracked}
    assert "milepost_experiments/papers/load/c/udp_source.c" in expected
    assert expected <= packed


def test_the_files_of_the_archive_are_listed_without_spark(environment: Path, tmp_path: Path) -> None:
    command = [str(environment / "bin" / "milepost"), "pipeline", "archive", "files", "reports", "--archive", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
