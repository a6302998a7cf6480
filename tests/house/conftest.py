"""Small bad trees, so that each rule is seen to fail."""

from pathlib import Path

import pytest

from house.rules.tree import Plant


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Makes a tree from a map of names to texts and gives its root; once a test, for rules remember what they read."""

    def make(texts: dict[str, str]) -> Path:
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make
