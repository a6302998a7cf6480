"""Calling a third party's function: in a thread of its own, so that one that never ends costs that thread and no more.

Python cannot stop a thread. One that takes too long is left behind: nothing that it does counts any more, its store refuses it,
and it ends by itself when the function returns. When `HUNG_MAX` of them are left behind the process has to be started anew.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from milepost.handlers.appending import LOOK_S, CalledOff

HUNG_MAX: Final = 8

Work = Callable[[], object]


class TookTooLong(Exception):
    """A call that was given up."""


class _Call:
    """One call and what became of it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result: object = None
        self.fault: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as fault:  # noqa: BLE001  # also SystemExit: it ends that call, not the process
            self.fault = fault
        self.done.set()


class Caller:
    """Makes one call at a time; `over` calls off the one that is being waited for."""

    def __init__(self, timeout_s: float, over: threading.Event) -> None:
        self._timeout_s = timeout_s
        self._over = over
        self._calls: SimpleQueue[_Call | None] | None = None
        self._left_behind: list[_Call] = []

    @property
    def hung(self) -> int:
        """Calls that were left behind and are not over."""
        self._left_behind = [call for call in self._left_behind if not call.done.is_set()]
        return len(self._left_behind)

    def call(self, work: Work) -> object:
        """What it gives or raises; `TookTooLong`, or `CalledOff`, if it was not waited for."""
        call = _Call(work)
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_serve, args=(self._calls,), name="handler-call", daemon=True).start()
        self._calls.put(call)
        left_s = self._timeout_s
        while not call.done.wait(min(left_s, LOOK_S)):
            left_s -= LOOK_S
            if left_s <= 0 or self._over.is_set():
                self._leave_behind(call)
                raise CalledOff if self._over.is_set() else TookTooLong(f"it took more than {self._timeout_s:g} s")
        if call.fault is not None:
            raise call.fault
        return call.result

    def close(self) -> None:
        """Let the thread end."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def _leave_behind(self, call: _Call) -> None:
        self._left_behind.append(call)
        self.close()


def _serve(calls: "SimpleQueue[_Call | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()
