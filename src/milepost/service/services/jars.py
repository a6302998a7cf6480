"""Jars of a server, by Maven coordinates: fetched once into the user's cache, then only looked up.

What must hold: a folder in the cache is complete. Jars are fetched beside it and the folder is renamed when the tool that fetched
them has said that all are there, so a fetch that was cut off leaves nothing that looks finished.

Ivy fetches them if PySpark is installed, whose jars contain it; otherwise Maven does. Where they come from is what these two are
set up to use.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Final

from milepost.service.faults import StartFault

FETCH_S_MAX: Final = 900
_LINES_SHOWN: Final = 12
_TELL_EVERY: Final = 10

Told = Callable[[str], None]
"""Takes a line about how far it is."""


@dataclass(frozen=True, slots=True)
class Jars:
    """What one server consists of; all its parts run in one class path."""

    name: str
    version: str
    coordinates: tuple[str, ...]
    """GROUP:ARTIFACT:VERSION each; the first is the server itself."""
    are_all: bool = False
    """Whether the coordinates are all there is to take; otherwise each is taken with what it needs."""

    @property
    def main_file(self) -> str:
        """The file of the server itself."""
        _, artifact, version = self.coordinates[0].split(":")
        return f"{artifact}-{version}.jar"


def class_path(jars: Jars, java: str, told: Told) -> str:
    """The jars as Java wants to hear it, fetched if they are not in the cache."""
    return f"{fetched_folder(jars, java, told)}/*"


def fetched_folder(jars: Jars, java: str, told: Told) -> Path:
    """The folder that has them and nothing else."""
    folder = folder_of(jars)
    if not folder.is_dir():
        _fetch(jars, folder, java, told)
    return folder


def folder_of(jars: Jars) -> Path:
    """Where they are once they were fetched."""
    return cache_folder() / f"{jars.name}-{jars.version}"


def cache_folder() -> Path:
    """Where the jars of servers are kept for this user."""
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
            if not folder.is_dir():  # another process was faster otherwise
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
    raise StartFault(
        f"{jars.name} is fetched by PySpark's Ivy or by Maven, and there is neither: pip install 'milepost[spark]', or get mvn"
    )


def _maybe_ivy() -> Path | None:
    """The Ivy among PySpark's jars; PySpark is not imported, only found."""
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
    """Run the tool to its end, saying now and then how many files it has got."""
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
