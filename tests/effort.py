"""How much a run does, by its profile (MILEPOST_TEST_PROFILE, set by `make`).

    fast     make test-fast, or pytest by hand    few fixed examples
    full     make test                            more fixed examples
    long     make test-long                       long series, and a block of simulation seeds: a new one every day, fixed in CI
    search   make search                          new examples and new seeds only
    soak     make soak                            series for hours

Only `search` draws examples, from the seed that it prints.
"""

import os
import time
from typing import Final

PROFILE: Final = os.environ.get("MILEPOST_TEST_PROFILE", "fast")
DAY_S: Final = 86_400
SEEDS_A_DAY: Final = 1_000


def examples(*, fast: int, full: int) -> int:
    """Return how many examples a costly property test tries."""
    return fast if PROFILE == "fast" else full


def amount(name: str, *, fast: int, long: int, soak: int) -> int:
    """Return the length of a series: the environment variable *name*, or what the profile asks for."""
    return int(os.environ.get(name) or {"long": long, "soak": soak}.get(PROFILE, fast))


def seeds(fixed: range, failed_once: list[int], *, block: int) -> list[int]:
    """Return the seeds of a simulation: fixed ones, those that once failed, and a block of new ones where the profile wants them.

    MILEPOST_TEST_SEEDS is the first new seed. Its default changes every day, but not in CI, where a change is judged by what it
    changes. The seed is in the name of the test.
    """
    days = 0 if os.environ.get("CI") else int(time.time()) // DAY_S
    first = int(os.environ.get("MILEPOST_TEST_SEEDS") or 1_000_000 + days * SEEDS_A_DAY)
    new = [*range(first, first + block)] if PROFILE in ("long", "search", "soak") else []
    return new if PROFILE == "search" else [*fixed, *failed_once, *new]
