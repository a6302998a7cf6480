"""Hazards: what endpoints report of events, each where it was seen, for a short while."""

from collections.abc import Sequence
from typing import Final

from milepost.dashboard.tables import Table
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.sites import Said

HAZARDS_MAX: Final = 500
SHOWN_MS: Final = 60_000
"""So long a report is shown, or as long as it is valid if that is shorter."""


class Hazards:
    """Reports of events of known kinds."""

    def __init__(self, kinds: Sequence[EventKind]) -> None:
        self.table = Table(HAZARDS_MAX)
        self._kinds = {kind.topic: kind.name for kind in kinds}

    def take(self, said: Said, source_place: tuple[float, float] | None) -> None:
        """A message, and where its source is; it is a hazard if its topic is that of a kind and it has a place."""
        message = said.message
        kind = self._kinds.get(message.topic)
        place = (message.place.latitude, message.place.longitude) if message.place else source_place
        if kind is None or place is None:
            return
        seen_ms = message.seen_at // 1_000_000
        until_ms = min(seen_ms + SHOWN_MS, message.valid_until // 1_000_000)
        row = {"kind": kind, "place": [place[1], place[0]], "source": message.source, "seen_ms": seen_ms, "until_ms": until_ms}
        self.table.put(f"{said.sender}:{said.number}", row)  # not all that is said over MQTT has an id

    def tick(self, now: Instant) -> None:
        """Let go what was shown long enough."""
        now_ms = now // 1_000_000
        for key, row in self.table.items():
            if row["until_ms"] < now_ms:
                self.table.drop(key)
