"""Pages whose blocks are run from the first to the last (see `follower.py`)."""

from pathlib import Path
from typing import Final

import pytest

from docs.follower import Follower
from docs.pages import ROOT, Block, blocks_of

PASTED: Final = ("README.md",)
"""Pages for new users: each block is pasted as a whole, in a fresh clone, by a user without `milepost` on the PATH."""
PLAIN: Final = ("docs/how-to/sites.md", "docs/how-to/map.md", "docs/reference/access.md", "docs/reference/client.md")
WITH_JAVA: Final = (
    "docs/tutorial.md",
    "docs/how-to/event-kinds.md",
    "docs/how-to/kafka.md",
    "docs/how-to/pipelines.md",
    "docs/how-to/spark-cluster.md",
)

FOLLOWED: Final = (*PASTED, *PLAIN, *WITH_JAVA)
BEFORE: Final = {
    "docs/reference/client.md": ("milepost edge run",),
    "docs/how-to/map.md": (
        r"printf '[site]\nname = \"north\"\nfolder = \"data/north\"\n' > edge.toml",
        "milepost edge run --config edge.toml",
    ),
}
"""Commands that a page requires to have run."""


def follow(reader: Follower, page: str) -> None:
    for command in BEFORE.get(page, ()):
        reader.type(command)
    reader.follow(blocks_of(page))
    assert reader.terminals


@pytest.mark.parametrize("page", PASTED)
def test_every_block_of_the_page_can_be_pasted(newcomer: Follower, page: str) -> None:
    newcomer.paste(blocks_of(page))
    assert newcomer.terminals


@pytest.mark.parametrize("page", PLAIN)
def test_the_page_can_be_followed(reader: Follower, page: str) -> None:
    if page.endswith("map.md") and not (ROOT / "src" / "milepost" / "dashboard" / "_built").exists():
        pytest.skip("the page of the map is not built; fix: make page")
    follow(reader, page)


@pytest.mark.parametrize("page", WITH_JAVA)
def test_the_page_with_java_can_be_followed(fetched: None, reader: Follower, page: str) -> None:
    follow(reader, page)


def test_a_block_with_a_command_after_one_that_does_not_end_cannot_be_pasted(tmp_path: Path) -> None:
    block = Block("new.md", 1, "sh", "milepost edge run  # until Ctrl-C\nmosquitto_pub -t a -m x\n")
    with pytest.raises(AssertionError, match="milepost edge run does not end"):
        Follower(tmp_path).paste([block])
