"""The feed of the map: tails the logs of sites into the scene.

Invariant: a log's thread waits until its records are in the scene, so that no queue grows between them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from time import time_ns
from typing import Final

from milepost.dashboard.records import MESSAGES, TOPICS, maybe_fact
from milepost.dashboard.scene import Scene
from milepost.eventlog.log import Following, Log, LogLost, Record, Since, Start, TopicEnd
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import DELIVERIES, REPORTS
from milepost.model.reasons import Malformed

REPORTS_S: Final = 10
"""Age in seconds of the oldest reports read at the start, for the current positions."""
MESSAGES_S: Final = 600
"""Age in seconds of the oldest alerts and deliveries read at the start."""


class Feed:
    """Tails logs until closed."""

    def __init__(self, scene: Scene, logs: Mapping[str, Log], lost: Callable[[LogLost], None]) -> None:
        self._scene = scene
        self._loop = asyncio.get_running_loop()
        self._followings: list[Following] = []
        now = time_ns()
        for site, log in logs.items():
            starts: dict[str, Start] = dict.fromkeys(TOPICS, TopicEnd.BEGINNING)
            starts[REPORTS] = Since(Instant(now - REPORTS_S * SECOND_NS))
            starts |= dict.fromkeys((MESSAGES, DELIVERIES), Since(Instant(now - MESSAGES_S * SECOND_NS)))
            self._followings.append(log.follow(starts, partial(self._take, site), partial(self._lost, lost)))

    async def close(self) -> None:
        """Stop reading."""
        for following in self._followings:
            await asyncio.to_thread(following.close)  # in a thread: it joins one that may be waiting for this loop

    # In the log's threads.

    def _take(self, site: str, records: Sequence[Record]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._apply(site, records), self._loop).result()
        except (CancelledError, RuntimeError):  # the event loop has ended
            return

    def _lost(self, lost: Callable[[LogLost], None], fault: LogLost) -> None:
        self._loop.call_soon_threadsafe(lost, fault)

    # In the event loop.

    async def _apply(self, site: str, records: Sequence[Record]) -> None:
        now = Instant(time_ns())
        for record in records:
            try:
                fact = maybe_fact(record)
                if fact is not None:
                    self._scene.take(site, fact, record.appended_at, now)
            except (Malformed, TypeError, ValueError):
                self._scene.unreadable += 1
