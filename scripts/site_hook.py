"""Pages of the documentation site from outside docs/: the README as first page, benchmark results, CONTRIBUTING, SECURITY.

Links that lead from one of these to another are turned to where it stands on the site; links to what is not there (a source
file, the licence) become plain text.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
RESULTS = "bench/results"
PICTURES = (".png", ".svg")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> None:
    """Replace folders in the navigation by their pages."""
    config.nav = [_spread(entry) for entry in config.nav or []]


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Add pages and images from outside docs/."""
    for name, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for path in _results():
        files.append(File.generated(config, f"{RESULTS}/{path.name}", abs_src_path=str(path)))


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Rewrite the links of a page to locations on the site."""
    here = _from_site(page.file.src_uri)

    def turned(found: re.Match[str]) -> str:
        bang, text, link = found.groups()
        target, _, anchor = link.partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        there = _on_site(normpath((PurePosixPath(here).parent / target).as_posix()))
        if files.get_file_from_path(there) is None:
            return text
        way = relpath(there, PurePosixPath(page.file.src_uri).parent)
        return f"{bang}[{text}]({way}{'#' * bool(anchor)}{anchor})"

    parts = re.split(f"({FENCE.pattern})", markdown, flags=FENCE.flags)
    return "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in parts)


def _results() -> list[Path]:
    return [path for path in sorted((ROOT / RESULTS).iterdir()) if path.suffix in (".md", *PICTURES)]


def _spread(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    ((title, inside),) = entry.items()
    listed = inside if isinstance(inside, list) else [inside]
    spread = [page for one in listed for page in (_pages(one) if one.endswith("/") else [one])]
    return {title: spread if isinstance(inside, list) or inside.endswith("/") else inside}


def _pages(folder: str) -> list[str]:
    """Return the pages of a folder: decisions in order, others by title."""
    where = ROOT / folder if folder.startswith("bench/") else ROOT / "docs" / folder
    found = sorted(where.glob("*.md"), key=lambda path: (path.name[:4] if path.name[0] == "0" else "", _title(path)))
    return [f"{folder}{path.name}" for path in found]


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].lower()


def _on_site(path: str) -> str:
    """Return the location on the site of a file in the repository."""
    return OUTSIDE.get(path, path.removeprefix("docs/"))


def _from_site(page: str) -> str:
    """Return the file in the repository of a location on the site."""
    outside = {there: here for here, there in OUTSIDE.items()}
    return outside.get(page, page if page.startswith(f"{RESULTS}/") else f"docs/{page}")
