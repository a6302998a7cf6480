"""Jars of a server, by Maven coordinates: downloaded once into the user's cache.

Invariant: a folder in the cache is complete. Jars are downloaded to a folder beside it, which is renamed after the tool has
succeeded, so an interrupted download leaves nothing that looks finished.

Ivy downloads them if PySpark is installed, whose jars contain it; otherwise Maven does. The repositories are those that these
tools are configured with.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Final

from milepost.config.errors import StartFault, missing_extra

# The Java runtime of the servers.

JAVA_MIN: Final = 17
"""Minimum Java version, required by Kafka 4."""

_ANSWER_S_MAX: Final = 30
_VERSION: Final = re.compile(r'version "(\d+)')
_INSTALL: Final = f"install one (on Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME"


def find_java() -> str:
    """Return the path of `java`, from JAVA_HOME or PATH; raise a `StartFault` if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise StartFault(f"the servers need Java {JAVA_MIN} or newer and there is none: {_INSTALL}")
    version = _version_of(java)
    if version < JAVA_MIN:
        raise StartFault(f"{java} is Java {version}, and the servers need {JAVA_MIN} or newer: {_INSTALL}")
    return java


def _version_of(java: str) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise StartFault(f"{java} does not run ({fault}): {_INSTALL}") from None
    found = _VERSION.search(said)
    return int(found[1]) if found else 0


FETCH_S_MAX: Final = 900
_LINES_SHOWN: Final = 12
_TELL_EVERY: Final = 10

Told = Callable[[str], None]
"""Called with a line of progress."""


@dataclass(frozen=True, slots=True)
class Jars:
    """The jars of one server, on one class path."""

    name: str
    version: str
    coordinates: tuple[str, ...]
    """GROUP:ARTIFACT:VERSION each; the first is the server itself."""
    are_all: bool = False
    """Whether the coordinates are complete; otherwise transitive dependencies are added."""

    @property
    def main_file(self) -> str:
        """File name of the server's own jar."""
        _, artifact, version = self.coordinates[0].split(":")
        return f"{artifact}-{version}.jar"


def class_path(jars: Jars, java: str, told: Told) -> str:
    """Return the class path, after downloading jars that are not in the cache."""
    return f"{fetched_folder(jars, java, told)}/*"


def fetched_folder(jars: Jars, java: str, told: Told) -> Path:
    """Return the folder with exactly these jars, after downloading them if needed."""
    folder = folder_of(jars)
    if not folder.is_dir():
        _fetch(jars, folder, java, told)
    return folder


def folder_of(jars: Jars) -> Path:
    """Return the cache folder of these jars."""
    return cache_folder() / f"{jars.name}-{jars.version}"


def cache_folder() -> Path:
    """Return the user's cache folder for jars."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "milepost", "servers")


def _fetch(jars: Jars, folder: Path, java: str, told: Told) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        fetched = Path(scratch, "jars")
        command = _command(jars, Path(scratch), fetched, java)
        told(f"fetching {jars.name} {jars.version} into {folder}, once ...")
        _run(command, jars, told)
        if not (fetched / jars.main_file).is_file():
            raise StartFault(f"{command[0]} fetched {jars.name}, but not {jars.main_file}: try again")
        try:
            fetched.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has finished first
                raise
    told(f"fetched {jars.name} {jars.version}: {len(list(folder.iterdir()))} files")


def _command(jars: Jars, scratch: Path, fetched: Path, java: str) -> list[str]:
    ivy = _maybe_ivy()
    if ivy is not None:
        asked = scratch / "ivy.xml"
        asked.write_text(_ivy_file(jars))
        pattern = f"{fetched}/[artifact]-[revision].[ext]"
        return [
            java,
            "-jar",
            str(ivy),
            "-cache",
            str(scratch / "ivy"),
            "-ivy",
            str(asked),
            "-confs",
            "server",
            "-retrieve",
            pattern,
        ]
    maven = shutil.which("mvn")
    if maven is not None:
        asked = scratch / "pom.xml"
        asked.write_text(_maven_file(jars))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        alone = ["-DexcludeTransitive=true"] if jars.are_all else []
        return [maven, "--batch-mode", "--file", str(asked), *goal, *alone]
    raise missing_extra(f"the download of {jars.name} without Maven (mvn)", "spark")


def _maybe_ivy() -> Path | None:
    """Return the Ivy jar of PySpark, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("jars/ivy-*.jar"), None)


def _ivy_file(jars: Jars) -> str:
    how = "master" if jars.are_all else "default"
    wanted = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="server->{how}"/>'
        for group, artifact, version in _parts(jars)
    )
    return (
        f'<ivy-module version="2.0"><info organisation="milepost" module="{jars.name}"/>'
        f'<configurations><conf name="server"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def _maven_file(jars: Jars) -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in _parts(jars)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>milepost</groupId>"
        f"<artifactId>{jars.name}</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
    )


def _parts(jars: Jars) -> Iterator[tuple[str, str, str]]:
    for coordinate in jars.coordinates:
        group, artifact, version = coordinate.split(":")
        yield group, artifact, version


def _run(command: list[str], jars: Jars, told: Told) -> None:
    """Run the download tool, and report its progress."""
    said: list[str] = []
    files = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as tool:
        limit = Timer(FETCH_S_MAX, tool.kill)
        limit.start()
        try:
            assert tool.stdout is not None
            for line in tool.stdout:
                said = [*said, line.rstrip()][-_LINES_SHOWN:]
                is_file = ("[SUCCESSFUL" in line or "Downloaded from" in line) and ".jar" in line
                files += is_file
                if is_file and files % _TELL_EVERY == 0:
                    told(f"fetching {jars.name} {jars.version}: {files} files so far")
        finally:
            limit.cancel()
    if tool.returncode != 0:
        raise StartFault(
            f"{jars.name} {jars.version} could not be fetched: is there a network, does {Path(command[0]).name} need a proxy? "
            "Its last lines:\n" + "\n".join(said)
        )


# The Kafka connector of Spark

KNOWN_CONNECTORS: Final = (("4.2.0", "4.0.0"),)
"""Connectors tested with the Spark of this release, each with its token provider."""

_CONNECTOR: Final = "spark-kafka"
_SCALA: Final = "2.13"
_KAFKA_CLIENT: Final = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.12.1")


def kafka_jars(*, version: str = "", told: Told = lambda _: None) -> list[Path]:
    """Return the jars by which Spark reads and writes Kafka, fetched if none are in the cache.

    Take the connector of Spark's own version if there is one, else one of `KNOWN_CONNECTORS`; with *version* only that one.
    """
    candidates = (
        [_connector_jars(version, dict(KNOWN_CONNECTORS).get(version, version))] if version else list(_connector_candidates())
    )
    fetched = next((jars for jars in candidates if folder_of(jars).is_dir()), None)
    taken = fetched if fetched is not None else _first_available(candidates, told)
    told(f"Spark's Kafka connector is {taken.version}")
    return sorted(folder_of(taken).glob("*.jar"))


def _connector_candidates() -> Iterator[Jars]:
    try:
        exact = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise missing_extra("a pipeline", "spark") from None
    yield _connector_jars(exact, exact)
    for connector, token_provider in KNOWN_CONNECTORS:
        yield _connector_jars(connector, token_provider)


def _connector_jars(connector: str, token_provider: str) -> Jars:
    mine = (
        f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{connector}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_{_SCALA}:{token_provider}",
    )
    return Jars(_CONNECTOR, connector, (*mine, *_KAFKA_CLIENT), are_all=True)


def _first_available(candidates: list[Jars], told: Told) -> Jars:
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
