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

from milepost.config.errors import JAVA_MIN, StartFault, missing_extra, missing_java

# The Java runtime of the servers, and of Spark.

_ANSWER_S_MAX: Final = 30
_VERSION: Final = re.compile(r'version "(\d+)')


def find_java() -> str:
    """Return the path of `java`, from JAVA_HOME or PATH; raise a `StartFault` if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise missing_java("there is no java in PATH")
    version = _version_of(java)
    if version < JAVA_MIN:
        raise missing_java(f"{java} is Java {version}")
    return java


def _version_of(java: str) -> int:
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise missing_java(f"{java} does not run ({fault})") from None
    found = _VERSION.search(output)
    return int(found[1]) if found else 0


DOWNLOAD_S_MAX: Final = 900
_LINES_SHOWN: Final = 12
_FILES_PER_LINE: Final = 10
"""Downloaded files from one line of progress to the next."""

Progress = Callable[[str], None]
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


def class_path(jars: Jars, java: str, progress: Progress) -> str:
    """Return the class path, after downloading jars that are not in the cache."""
    return f"{downloaded_folder(jars, java, progress)}/*"


def downloaded_folder(jars: Jars, java: str, progress: Progress) -> Path:
    """Return the folder with exactly these jars, after downloading them if needed."""
    folder = folder_of(jars)
    if not folder.is_dir():
        _download(jars, folder, java, progress)
    return folder


def folder_of(jars: Jars) -> Path:
    """Return the cache folder of these jars."""
    return cache_folder() / f"{jars.name}-{jars.version}"


def cache_folder() -> Path:
    """Return the user's cache folder for jars."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "milepost", "servers")


def _download(jars: Jars, folder: Path, java: str, progress: Progress) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        downloaded = Path(scratch, "jars")
        command = _command(jars, Path(scratch), downloaded, java)
        progress(f"downloading {jars.name} {jars.version} to {folder}, only once ...")
        _run(command, jars, progress)
        if not (downloaded / jars.main_file).is_file():
            raise StartFault(f"{command[0]} downloaded {jars.name}, but not {jars.main_file}: try again")
        try:
            downloaded.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has finished first
                raise
    progress(f"downloaded {jars.name} {jars.version}: {len(list(folder.iterdir()))} files")


def _command(jars: Jars, scratch: Path, downloaded: Path, java: str) -> list[str]:
    ivy = _maybe_ivy()
    if ivy is not None:
        request_file = scratch / "ivy.xml"
        request_file.write_text(_ivy_file(jars))
        pattern = f"{downloaded}/[artifact]-[revision].[ext]"
        return [
            java,
            "-jar",
            str(ivy),
            "-cache",
            str(scratch / "ivy"),
            "-ivy",
            str(request_file),
            "-confs",
            "server",
            "-retrieve",
            pattern,
        ]
    maven = shutil.which("mvn")
    if maven is not None:
        request_file = scratch / "pom.xml"
        request_file.write_text(_maven_file(jars))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={downloaded}"]
        no_transitive = ["-DexcludeTransitive=true"] if jars.are_all else []
        return [maven, "--batch-mode", "--file", str(request_file), *goal, *no_transitive]
    raise missing_extra(f"the download of {jars.name} without Maven (mvn)", "spark")


def _maybe_ivy() -> Path | None:
    """Return the Ivy jar of PySpark, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("jars/ivy-*.jar"), None)


def _ivy_file(jars: Jars) -> str:
    how = "master" if jars.are_all else "default"
    dependencies = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="server->{how}"/>'
        for group, artifact, version in _parts(jars)
    )
    return (
        f'<ivy-module version="2.0"><info organisation="milepost" module="{jars.name}"/>'
        f'<configurations><conf name="server"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _maven_file(jars: Jars) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in _parts(jars)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>milepost</groupId>"
        f"<artifactId>{jars.name}</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
    )


def _parts(jars: Jars) -> Iterator[tuple[str, str, str]]:
    for coordinate in jars.coordinates:
        group, artifact, version = coordinate.split(":")
        yield group, artifact, version


def _run(command: list[str], jars: Jars, progress: Progress) -> None:
    """Run the download tool, and report its progress."""
    output: list[str] = []
    files = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as tool:
        limit = Timer(DOWNLOAD_S_MAX, tool.kill)
        limit.start()
        try:
            assert tool.stdout is not None
            for line in tool.stdout:
                output = [*output, line.rstrip()][-_LINES_SHOWN:]
                is_file = ("[SUCCESSFUL" in line or "Downloaded from" in line) and ".jar" in line
                files += is_file
                if is_file and files % _FILES_PER_LINE == 0:
                    progress(f"downloading {jars.name} {jars.version}: {files} files so far")
        finally:
            limit.cancel()
    if tool.returncode != 0:
        raise StartFault(
            f"{jars.name} {jars.version} could not be downloaded: is there a network, does {Path(command[0]).name} need a proxy? "
            "Its last lines:\n" + "\n".join(output)
        )


# The Kafka connector of Spark

KNOWN_CONNECTORS: Final = (("4.2.0", "4.0.0"),)
"""Connectors tested with the Spark of this release, each with its token provider."""

_CONNECTOR: Final = "spark-kafka"
_SCALA: Final = "2.13"
_KAFKA_CLIENT: Final = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.12.1")


def kafka_jars(*, version: str = "", progress: Progress = lambda _: None) -> list[Path]:
    """Return the jars by which Spark reads and writes Kafka, downloaded if none are in the cache.

    Take the connector of Spark's own version if there is one, else one of `KNOWN_CONNECTORS`; with *version* only that one.
    """
    candidates = (
        [_connector_jars(version, dict(KNOWN_CONNECTORS).get(version, version))] if version else list(_connector_candidates())
    )
    downloaded = next((jars for jars in candidates if folder_of(jars).is_dir()), None)
    chosen = downloaded if downloaded is not None else _first_available(candidates, progress)
    progress(f"Spark's Kafka connector is {chosen.version}")
    return sorted(folder_of(chosen).glob("*.jar"))


def _connector_candidates() -> Iterator[Jars]:
    try:
        exact = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise missing_extra("a pipeline", "spark") from None
    yield _connector_jars(exact, exact)
    for connector, token_provider in KNOWN_CONNECTORS:
        yield _connector_jars(connector, token_provider)


def _connector_jars(connector: str, token_provider: str) -> Jars:
    connector_coordinates = (
        f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{connector}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_{_SCALA}:{token_provider}",
    )
    return Jars(_CONNECTOR, connector, (*connector_coordinates, *_KAFKA_CLIENT), are_all=True)


def _first_available(candidates: list[Jars], progress: Progress) -> Jars:
    java = find_java()
    *others, last = candidates
    for jars in others:
        try:
            downloaded_folder(jars, java, progress)
        except StartFault as fault:
            progress(f"no connector {jars.version}: {str(fault).splitlines()[0]}")
        else:
            return jars
    downloaded_folder(last, java, progress)
    return last
