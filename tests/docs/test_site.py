"""The documentation site (mkdocs.yml, scripts/site_hook.py) builds without a warning, and loads nothing from other hosts."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class PageLinks(HTMLParser):
    """The resources that a page loads, and the targets of its links."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a":
            self.links.append(attributes.get("href") or "")
        elif tag in ("script", "img", "iframe", "source"):
            self.fetched.append(attributes.get("src") or "")
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.fetched.append(attributes.get("href") or "")


def links_of(page: Path) -> PageLinks:
    links = PageLinks()
    links.feed(page.read_text())
    return links


def test_every_page_of_the_documents_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert [str(page) for page in pages if not (site / page).exists()] == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    foreign = [
        (page.name, what) for page in site.rglob("*.html") for what in links_of(page).fetched if re.match(r"(https?:)?//", what)
    ]
    assert foreign == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(https?:)?//", styles)


def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for link in links_of(page).links:
            target = link.partition("#")[0].partition("?")[0]
            if target and not re.match(r"[a-z]+:|/", target) and not (page.parent / target).exists():
                broken.append((page.relative_to(site).as_posix(), link))
    assert broken == []


def test_the_python_page_lists_the_public_names(site: Path) -> None:
    text = (site / "reference" / "python.html").read_text()
    for name in ("connect", "Inbox", "Circle", "parse_query", "Matcher", "Handler", "find_upstream_area", "area_from_wkt"):
        assert f'.{name}"' in text, name


def test_results_of_benchmarks_are_on_the_site_with_their_pictures(site: Path) -> None:
    assert (site / "bench" / "results" / "edge.html").exists()
    assert (site / "bench" / "results" / "edge.png").exists()
