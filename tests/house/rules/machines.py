"""No file under version control contains a path of one machine or the host of a package registry, except the lock file."""

import re
from pathlib import Path

from house.rules.tree import files, name_of, text_of

EXEMPT = {"uv.lock"}

MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:home|root|Users|work)/[\w.-]+")
# Spelled in two halves, so that this file passes its own rule.
REGISTRY_HOSTS = tuple(
    ".".join(halves)
    for halves in (
        ("pypi", "org"), ("files.pythonhosted", "org"), ("proxy.golang", "org"), ("registry.npmjs", "org"),
        ("repo1.maven", "org"), ("repo.maven.apache", "org"), ("deb.debian", "org"), ("crates", "io"),
    )
)  # fmt: skip
INDEX_OPTION = re.compile(r"(?:extra-)?index-url[ =]|find-links[ =]")


def machine_faults(root: Path) -> list[str]:
    """Return lines that are valid on one machine only."""
    faults = []
    for path in files(root):
        name = name_of(root, path)
        if name in EXEMPT:
            continue
        for number, line in enumerate(text_of(path).splitlines(), start=1):
            faults += [f"{name}:{number} names {what}" for what in _machine_words(line)]
    return faults


def _machine_words(line: str) -> list[str]:
    words = [match.group() for match in MACHINE_PATH.finditer(line)]
    words += [host for host in REGISTRY_HOSTS if re.search(rf"(?<![\w-]){re.escape(host)}\b", line)]
    return words + [match.group() for match in INDEX_OPTION.finditer(line)]
