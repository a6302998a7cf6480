"""`milepost paper`: run the evaluation of one of the papers on this machine."""

import argparse
from pathlib import Path
from typing import Final

from milepost.cli.command_parser import Commands

_EPILOG: Final = """\
examples:
  milepost paper mercury --quick         Mercury's evaluation in about a minute and a half
  milepost paper mercury --out mercury   the full evaluation; tables, figures and results in a folder
  milepost paper dpsmd --log kafka       DPSMD's test, on Kafka

It needs the extra `experiments` and a C compiler with OpenSSL's headers. Everything runs on 127.0.0.1 and is stopped at the end.
The exit status is 1 if a message was lost, duplicated or wrongly admitted.
"""


def add_to(commands: Commands) -> None:
    """Add `paper`."""
    paper = commands.add_parser(
        "paper",
        help="run a paper's evaluation",
        description="Run a paper's evaluation and compare our results with the paper's.",
        epilog=_EPILOG,
    )
    paper.add_argument("paper", metavar="PAPER", choices=("mercury", "dpsmd"), help="mercury or dpsmd")
    paper.add_argument("--quick", action="store_true", help="smaller sizes and shorter runs")
    paper.add_argument("--out", metavar="FOLDER", type=Path, help="folder for the report; default data/paper/PAPER")
    paper.add_argument("--log", choices=("embedded", "kafka"), default="embedded", help="storage of the sites' logs, for dpsmd")
    paper.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from milepost_experiments.papers.run import run_paper  # noqa: PLC0415  # imports numpy and optional dependencies

    folder = arguments.out or Path("data", "paper", arguments.paper)
    return run_paper(arguments.paper, folder, is_quick=arguments.quick, log_type=arguments.log)
