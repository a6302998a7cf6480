"""docs/glossary.md comes first: every part of the vocabulary stands there, with its type."""

from pathlib import Path

from house.rules.names import modules
from house.rules.tree import text_of


def glossary_faults(root: Path) -> list[str]:
    """Modules of the vocabulary that the glossary does not name."""
    glossary = text_of(root / "docs" / "glossary.md")
    vocabulary = sorted(name for name in modules(root) if name.startswith("milepost.model.") and name.count(".") == 2)
    return [f"{name} is not in docs/glossary.md" for name in vocabulary if f"`{name}" not in glossary]
