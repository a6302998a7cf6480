"""The test vectors as lines for a reader without JSON: a path, a tab, a value. `python3 flatten.py sealed.json`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path


def lines_of(value: object, path: str) -> Iterator[str]:
    """Yield one line for each text and number; items of lists are identified by their names."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from lines_of(inner, f"{path}/{name}" if path else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            name = inner.get("name", number) if isinstance(inner, dict) else number
            yield from lines_of(inner, f"{path}/{name}")
    else:
        yield f"{path}\t{value}"


if __name__ == "__main__":
    print("\n".join(lines_of(json.loads(Path(sys.argv[1]).read_text()), "")))
