"""The child processes of the demo: no interrupt is lost."""

import gc
import signal
import sys
from pathlib import Path

import pytest

from milepost_experiments.demo.child_processes import Children


class Dropped:
    """Raises the signal where Python lets no exception out."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_dropped_by_python_is_raised_at_the_next_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children = Children(tmp_path)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    before = signal.signal(signal.SIGUSR1, children.interrupt)
    try:
        children.check()
        Dropped()
        gc.collect()
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(KeyboardInterrupt):
        children.wait_until(lambda: False, "never", 5.0)
