"""`milepost pipeline`: Spark pipelines over the log of a site: cells, positions, an archive and coverage proofs."""

import argparse
import shlex
from pathlib import Path
from typing import Final

from milepost.cli import archive
from milepost.cli.command_parser import Commands
from milepost.cli.spark_options import add_conf, conf_in
from milepost.config.errors import require_module

_RUN_EPILOG: Final = """\
examples:
  milepost pipeline run all --config milepost.toml
  milepost pipeline run hazards dead-letters --config milepost.toml
  milepost pipeline run all --config milepost.toml --conf spark.ui.enabled=true --conf spark.ui.port=4040

Pipelines: hazards (event reports to cells, which `milepost incidents run` turns into alerts), positions (last positions, speeds,
coverage holes, handovers), reputation (a score for each endpoint), archive (messages, reports and deliveries as Parquet),
dead-letters (records that cannot be decoded).
It needs PySpark and Java 17, reads the log of the site in the file, and runs until SIGINT or SIGTERM. After a crash it resumes
from its checkpoints. [pipelines] in the file has its settings.
"""
_STATUS_EPILOG: Final = """\
example:
  milepost pipeline status --config milepost.toml

It prints the last status of each query. The exit status is 0 if all queries run.
"""
_SUBMIT_EPILOG: Final = """\
examples:
  milepost pipeline submit all --config milepost.toml --master spark://10.0.0.5:7077
  milepost pipeline submit all --config milepost.toml --master yarn --show
  milepost pipeline submit hazards --config milepost.toml --master spark://10.0.0.5:7077 --spark='--executor-memory 4g'

It prints the spark-submit command and runs it; with --show it only prints it. The site's log must be Kafka, and all machines of
the cluster must reach the folder in [pipelines]. In real-time mode every task of a query needs a core of its own: as many as the
query's topics plus `partitions` in [pipelines].
"""


def add_to(commands: Commands) -> None:
    """Add `pipeline` and its subcommands."""
    pipeline = commands.add_parser(
        "pipeline",
        help="run Spark pipelines over a site's log",
        description="Run Spark pipelines over a site's log, and query their archive; see docs/how-to/pipelines.md.",
    )
    verbs: Commands = pipeline.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    run = verbs.add_parser("run", help="run pipelines", description="Run pipelines until stopped.", epilog=_RUN_EPILOG)
    _add_names(run)
    add_conf(run)
    run.add_argument("--submitted", action="store_true", help="set by `submit`: spark-submit provides master and jars")
    run.set_defaults(run=_run)
    status = verbs.add_parser(
        "status", help="show the status of pipelines", description="Show the status of pipelines.", epilog=_STATUS_EPILOG
    )
    status.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    status.set_defaults(run=_status)
    submit = verbs.add_parser(
        "submit", help="run pipelines on a cluster", description="Run pipelines on a Spark cluster.", epilog=_SUBMIT_EPILOG
    )
    _add_names(submit)
    add_conf(submit)
    submit.add_argument("--master", metavar="URL", required=True, help="the cluster, such as spark://HOST:7077")
    submit.add_argument("--show", action="store_true", help="print the command, but do not run it")
    submit.add_argument("--spark", metavar="OPTIONS", default="", help="further options for spark-submit, in one string")
    submit.set_defaults(run=_submit)
    archive.add_to(verbs)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="names of pipelines, or all")
    parser.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")


def _run(typed: argparse.Namespace) -> int:
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy

    settings = read_settings(typed.config)
    require_module("pyspark", "a pipeline", "spark")
    from milepost.runtime.pipelines import run  # noqa: PLC0415  # imports PySpark, an optional dependency

    return run(settings, typed.names, conf=conf_in(typed), is_submitted=typed.submitted)


def _status(typed: argparse.Namespace) -> int:
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy
    from milepost.runtime.pipeline_status import show_status  # noqa: PLC0415  # imports numpy

    return show_status(read_settings(typed.config))


def _submit(typed: argparse.Namespace) -> int:
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy

    settings = read_settings(typed.config)
    require_module("pyspark", "a pipeline", "spark")
    from milepost.runtime.pipelines import submit  # noqa: PLC0415  # imports PySpark, an optional dependency

    return submit(
        settings,
        typed.config.absolute(),
        typed.names,
        master=typed.master,
        conf=conf_in(typed),
        more=shlex.split(typed.spark),
        is_shown_only=typed.show,
    )
