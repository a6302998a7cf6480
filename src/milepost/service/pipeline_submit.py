"""`milepost pipeline submit`: the same pipelines on a Spark cluster, by `spark-submit`.

    spark-submit --master … --jars CONNECTOR --py-files milepost.zip --conf … milepost/__main__.py pipeline run NAME… --submitted

The driver runs here, tasks run on the cluster.
"""

import importlib.util
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import milepost
from milepost.pipelines.session import SETTINGS
from milepost.service.faults import StartFault, UsageFault
from milepost.service.pipelines import checked_names, source_of
from milepost.service.services.spark_jars import kafka_jars
from milepost.service.settings import Settings
from milepost.service.terminal import complain, say


def submit(
    settings: Settings, config: Path, names: Sequence[str], *, master: str, more: Sequence[str], is_shown_only: bool
) -> int:
    """Say the line, and run it; gives the exit status."""
    if not source_of(settings).is_real_time:
        raise UsageFault('[site] backbone is "embedded": a cluster cannot reach a log in a folder of this machine; take Kafka')
    line = submit_line(settings, config, checked_names(names), master=master, more=more)
    say(shlex.join(line))
    if is_shown_only:
        return 0
    sys.stdout.flush()
    with subprocess.Popen(line) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the terminal has told it too
            return process.wait()


def submit_line(settings: Settings, config: Path, names: Sequence[str], *, master: str, more: Sequence[str]) -> list[str]:
    """What is typed for these pipelines."""
    ours = settings.pipelines
    jars = kafka_jars(version=ours.connector, told=complain)
    told = {
        **SETTINGS,
        "spark.sql.shuffle.partitions": str(ours.partitions),
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys.executable,
    }
    conf = [part for name, value in told.items() for part in ("--conf", f"{name}={value}")]
    return [
        str(_spark_submit()),
        *("--master", master),
        *("--deploy-mode", "client"),
        *("--driver-memory", ours.memory),
        *("--jars", ",".join(map(str, jars))),
        *("--py-files", str(_packed(Path(ours.folder)))),
        *conf,
        *more,
        str(Path(milepost.__file__).parent / "__main__.py"),
        *("pipeline", "run", *names),
        *("--config", str(config), "--submitted"),
    ]


def _spark_submit() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise StartFault("pipelines need PySpark and it is not here: pip install 'milepost[spark]'")
    return Path(found.origin).parent / "bin" / "spark-submit"


def _packed(folder: Path) -> Path:
    """Our own code, for the machines of the cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    path, root = folder / "milepost.zip", Path(milepost.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(root.parent))
    return path
