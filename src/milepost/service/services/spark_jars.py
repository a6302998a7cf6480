"""The jars by which Spark reads and writes Kafka: of Spark's own version if that can be had, else those known to work with it."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from milepost.service.faults import StartFault
from milepost.service.services.jars import Jars, Told, fetched_folder, folder_of
from milepost.service.services.java import find_java

KNOWN: Final = (("4.2.0", "4.0.0"),)
"""Connectors that were tried with the Spark of this release, each with its token provider."""

_NAME: Final = "spark-kafka"
_SCALA: Final = "2.13"
_CLIENT: Final = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.12.1")


def kafka_jars(*, version: str = "", told: Told = lambda _: None) -> list[Path]:
    """The connector's files, fetched if none are in the cache; with a version that one, or a `StartFault`."""
    candidates = [_jars(version, dict(KNOWN).get(version, version))] if version else list(_candidates())
    fetched = next((jars for jars in candidates if folder_of(jars).is_dir()), None)
    taken = fetched if fetched is not None else _first_that_is_had(candidates, told)
    told(f"Spark's Kafka connector is {taken.version}")
    return sorted(folder_of(taken).glob("*.jar"))


def _candidates() -> Iterator[Jars]:
    try:
        exact = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise StartFault("pipelines need PySpark and it is not here: pip install 'milepost[spark]'") from None
    yield _jars(exact, exact)
    for connector, token_provider in KNOWN:
        yield _jars(connector, token_provider)


def _jars(connector: str, token_provider: str) -> Jars:
    mine = (
        f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{connector}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_{_SCALA}:{token_provider}",
    )
    return Jars(_NAME, connector, (*mine, *_CLIENT), are_all=True)


def _first_that_is_had(candidates: list[Jars], told: Told) -> Jars:
    java = find_java()
    *others, last = candidates
    for jars in others:
        try:
            fetched_folder(jars, java, told)
        except StartFault as fault:
            told(f"no connector {jars.version}: {str(fault).splitlines()[0]}")
        else:
            return jars
    fetched_folder(last, java, told)
    return last
