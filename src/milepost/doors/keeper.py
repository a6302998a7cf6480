"""The keeper: writes what changed, and knows when that is not possible.

| state   | `keep`                                         | `retry`                                             |
|---------|------------------------------------------------|-----------------------------------------------------|
| fine    | writes; if that fails: trouble, changes are held | nothing to do                                     |
| trouble | holds the changes, says that they are not kept | writes all that is held; if that works: fine        |

While in trouble the corridor refuses what would have to be kept, so what is held here stays small: the ends of things that exist.
"""

from typing import Final

from milepost.doors.log import Log
from milepost.edge.corridor import Corridor
from milepost.edge.keeping import Changes, Storage, StorageUnavailable
from milepost.model.instants import SECOND_NS, Instant

RETRY_NS: Final = SECOND_NS // 2


class Keeper:
    """Between an edge and its storage."""

    def __init__(self, corridor: Corridor, storage: Storage, log: Log) -> None:
        self._corridor = corridor
        self._storage = storage
        self._log = log
        self._held = Changes()
        self._tried_at = Instant(0)

    def keep(self, changes: Changes, now: Instant) -> bool:
        """Keep what changed in a turn; tells whether it is safe now."""
        if self._corridor.trouble is None and self._write(changes, now):
            return True
        self._held.absorb(changes)
        return False

    def retry(self, now: Instant) -> None:
        """Try again to write what could not be written."""
        if self._corridor.trouble is None or now - self._tried_at < RETRY_NS:
            return
        if self._write(self._held, now):
            self._held = Changes()
            self._corridor.trouble = None
            self._log.info("storage is back")

    def _write(self, changes: Changes, now: Instant) -> bool:
        self._tried_at = now
        try:
            self._storage.write(changes)
        except StorageUnavailable as fault:
            if self._corridor.trouble is None:
                self._log.warning("storage is unavailable", reason=str(fault))
            self._corridor.trouble = str(fault)
            return False
        return True
