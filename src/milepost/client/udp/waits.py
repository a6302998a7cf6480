"""Waits between repeats: twice as long each time, up to a limit, and drawn at random below that."""

from collections.abc import Callable

Draw = Callable[[int], bytes]
"""So many random bytes."""


def wait_ns(first_ns: int, most_ns: int, repeats: int, draw: Draw) -> int:
    """How long to wait after so many repeats: at least three quarters of what it could be, so that not all come at once."""
    ceiling = min(most_ns, first_ns << min(repeats, 30))
    return ceiling - ceiling * int.from_bytes(draw(2), "big") // 0x3FFFC
