"""Small trees that violate a rule: each rule is shown to fail on one."""

from pathlib import Path

import pytest

from house.rules.tree import Plant


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Return a function that writes a tree from a map of names to texts; once per test, since rules cache files."""

    def make(texts: dict[str, str]) -> Path:
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make
