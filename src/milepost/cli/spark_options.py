"""The option --conf of commands that start Spark."""

import argparse

from milepost.config.errors import UsageFault
from milepost.pipelines.spark_settings import spark_settings_from


def add_conf(parser: argparse.ArgumentParser) -> None:
    """Add --conf."""
    what = "a setting of Spark, by its own name; may be repeated"
    parser.add_argument("--conf", metavar="NAME=VALUE", action="append", default=[], help=what)


def conf_in(typed: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Spark that --conf gives."""
    try:
        return spark_settings_from(typed.conf)
    except ValueError as fault:
        raise UsageFault(f"--conf: {fault}") from None
