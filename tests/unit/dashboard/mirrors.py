"""A browser's state as a plain reference model of frames, and builders of facts for scenes."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from milepost.dashboard.records import DeliveryBatch, ReportBatch
from milepost.dashboard.vehicles import ROW
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import service_source
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.wire.json_form.field_codecs import Digits

HOME: Final = Place(40.76, -111.89)
START: Final = Instant(1_800_000_000 * SECOND_NS)


@dataclass
class Mirror:
    """The state of a browser."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def take(self, frame: bytes) -> "Mirror":
        """Apply a frame."""
        size = int.from_bytes(frame[:4], "little")
        assert size % 4 == 0, "the rows of vehicles are aligned to 32-bit words"
        head = orjson.loads(frame[4 : 4 + size])
        if head["whole"]:
            self.tables, self.names, self.rows = {}, {}, {}
        for number in head["removed"]:
            self.names.pop(number, None)  # the vehicle may have been added and removed since the last frame
            self.rows.pop(number, None)
        for number, name in head["names"].items():
            assert int(number) not in self.names, "a number has one name at a time"
            self.names[int(number)] = name
        for row in np.frombuffer(frame[4 + size :], ROW).tolist():
            self.rows[row[0]] = row
        for table, changes in head["tables"].items():
            mine = self.tables.setdefault(table, {})
            for key, row in changes.items():
                if row is None:
                    mine.pop(key, None)
                else:
                    mine[key] = row
        return self

    @property
    def shown(self) -> tuple[Any, ...]:
        """The whole state, by name; empty tables are left out."""
        vehicles = {self.names[number]: row[1:] for number, row in self.rows.items()}
        return {name: rows for name, rows in self.tables.items() if rows}, vehicles, set(self.names.values())


def reports(edge: str, *rows: tuple[str, float, float], at: Instant = START, verdict: int = 0) -> ReportBatch:
    """Build reports of vehicles at offsets from home, in degrees."""
    names = [name for name, _, _ in rows]
    latitudes = [HOME.latitude + up for _, up, _ in rows]
    longitudes = [HOME.longitude + along for _, _, along in rows]
    count = len(rows)
    return ReportBatch(
        edge, names, [at // 1_000] * count, latitudes, longitudes, [90.0] * count, [None] * count, [verdict] * count
    )


def alert(
    number: int,
    *,
    radius_m: float = 500.0,
    incident: str = "",
    phase: str = "raised",
    at: Instant = START,
    valid_s: int = 60,
    service: str = "incidents",
    certificate: bytes = b"",
) -> ForwardedMessage:
    """Build a message to a circle around home."""
    fields = {"kind": "Collision", "phase": phase, **({"incident": incident} if incident else {})}
    message = Message(
        MessageId(number),
        service_source(service),
        "Alert/Collision",
        at,
        address=ToNotified((incident or "none",)) if phase == "cleared" else ToArea(Circle(HOME, radius_m), incident),
        place=HOME,
        valid_until=Instant(at + valid_s * SECOND_NS),
        fields=fields,
        signature=bytes(64) if certificate else b"",
        certificate=certificate,
    )
    return ForwardedMessage(EdgeRef("north", f"@{service}"), number, message)


def deliveries(number: int, *rows: tuple[str, str], at: Instant = START, reason: int = 0) -> DeliveryBatch:
    """Build the delivery states of an alert for some endpoints."""
    names, states = [name for name, _ in rows], [state for _, state in rows]
    at_us, reasons = [at // 1_000] * len(rows), [reason if "dropped" in states else 0] * len(rows)
    return DeliveryBatch("north/west", "@service/incidents", Digits(number), names, states, at_us, reasons)


def later(seconds: float, than: Instant = START) -> Instant:
    """Return an instant some seconds after another."""
    return Instant(than + round(seconds * SECOND_NS))
