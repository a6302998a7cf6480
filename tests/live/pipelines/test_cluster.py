"""A real Spark cluster, master and two workers on loopback: `milepost pipeline submit` runs hazards on it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from live.pipelines.drivers import START_S, driver
from live.pipelines.logs import SiteLog, wait_until
from live.pipelines.test_hazards import recent_sightings
from live.pipelines.test_running import KINDS
from milepost.runtime.services.ports import free_ports
from parts import ROOT
from unit.pipelines.hazards_oracle import expected_cells

SPARK = Path(pyspark.__file__).parent
CORES = 2


@contextmanager
def server(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """Run a server of the cluster, and yield its log file."""
    log = folder / f"{name}.log"
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "128m", "PYSPARK_PYTHON": sys.executable}
    kind = "worker.Worker" if name.startswith("worker") else "master.Master"
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture
def cluster(need_java: str, tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    (port,) = free_ports(1)
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as servers:
        at = ("--host", "127.0.0.1", "--webui-port", "0")
        master = servers.enter_context(server(tmp_path, "master", *at, "--port", str(port)))
        wait_until(lambda: "I have been elected leader" in master.read_text(), "the master runs", seconds=START_S)
        for name in ("worker-1", "worker-2"):
            small = ("--cores", str(CORES), "--memory", "1g", "--work-dir", str(tmp_path / name))
            servers.enter_context(server(tmp_path, name, *at, *small, address))
        wait_until(lambda: master.read_text().count("Registering worker") == 2, "both workers are registered", seconds=START_S)
        yield address


def children_of(pid: int) -> list[str]:
    """Return the process ids of the children of a process; Java starts them in any of its threads."""
    return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def test_submitted_pipelines_produce_the_same_cells(cluster: str, on_kafka: SiteLog, tmp_path: Path) -> None:
    with driver(on_kafka, tmp_path / "driver", "hazards", pipelines="real_time_batch_s = 5.0") as driving:
        log = tmp_path / "submit.log"
        command = [sys.executable, "-m", "milepost", "pipeline", "submit", "hazards", "--config", str(driving.config)]
        more = ["--spark=--executor-memory 512m --conf spark.driver.host=127.0.0.1 --conf spark.log.level=WARN"]
        with log.open("ab") as out:
            process = subprocess.Popen([*command, "--master", cluster, *more], cwd=ROOT, stdout=out, stderr=out)
        try:
            wait_until(lambda: "pipelines ready" in log.read_text() or process.poll(), "the job is submitted", seconds=START_S)
            found = recent_sightings(300)
            on_kafka.append_sightings(found)
            expected = expected_cells(KINDS, found)
            wait_until(lambda: on_kafka.cells() == expected or process.poll(), "all cells are published", seconds=120)
            children = children_of(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)
    assert children, "spark-submit has started the driver"
    wait_until(lambda: not any(Path(f"/proc/{one}").exists() for one in children), "the driver ends with spark-submit")
    logged = log.read_text()
    assert on_kafka.cells() == expected, logged[-3000:]
    assert f"{SPARK / 'bin' / 'spark-submit'} --master {cluster} " in logged, "the command is printed"
    assert "reason=real-time" in logged
    assert 'Setting Spark log level to "WARN"' in logged, "an option of spark-submit wins over our default"
    wait_until(lambda: any((tmp_path / name).glob("app-*/*/stderr") for name in ("worker-1", "worker-2")), "workers worked")


def test_a_submitted_process_refuses_an_option_of_spark_submit_on_which_results_depend(on_kafka: SiteLog, tmp_path: Path) -> None:
    with driver(on_kafka, tmp_path / "driver", "hazards") as driving:
        command = [sys.executable, "-m", "milepost", "pipeline", "submit", "hazards", "--config", str(driving.config)]
        more = ["--master", "local[3]", "--spark=--conf spark.sql.ansi.enabled=true"]
        ended = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False)
    assert ended.returncode != 0
    assert '"spark.sql.ansi.enabled" must be "false", not "true"' in ended.stdout + ended.stderr
