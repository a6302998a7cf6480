"""`milepost paper`: run the evaluation of one of the papers on this machine."""

import argparse
from pathlib import Path
from typing import Final

from milepost.cli.parsers import Commands

_EPILOG: Final = """\
examples:
  milepost paper mercury --quick             Mercury's evaluation in about a minute and a half
  milepost paper mercury --out mercury       the whole of it; tables, pictures and figures in a folder
  milepost paper dpsmd --backbone kafka      DPSMD's test, on Kafka

It needs the extra `experiments` and a C compiler with OpenSSL's headers. Everything runs on 127.0.0.1, and nothing of it
is left running. The exit status is 1 if something was lost, doubled or let through that must not be.
"""


def add_to(commands: Commands) -> None:
    """Add `paper`."""
    paper = commands.add_parser(
        "paper",
        help="run a paper's evaluation",
        description="Run a paper's evaluation, ours beside theirs.",
        epilog=_EPILOG,
    )
    paper.add_argument("paper", metavar="PAPER", choices=("mercury", "dpsmd"), help="mercury or dpsmd")
    paper.add_argument("--quick", action="store_true", help="smaller sizes and shorter runs")
    paper.add_argument("--out", metavar="FOLDER", type=Path, help="where page, pictures and figures go; else data/paper/PAPER")
    paper.add_argument("--backbone", choices=("embedded", "kafka"), default="embedded", help="the log between edges, for dpsmd")
    paper.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost_experiments.papers.run import run_paper  # noqa: PLC0415  # imports numpy and optional dependencies

    folder = typed.out or Path("data", "paper", typed.paper)
    return run_paper(typed.paper, folder, is_quick=typed.quick, backbone=typed.backbone)
