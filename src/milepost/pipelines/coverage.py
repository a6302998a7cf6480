"""Coverage: proof from the archive of which endpoints received an area message, for all that were inside or in a delivery.

reports ─▶ inside: INSIDE_ROW ──┐
                                ├─▶ proof: PROOF_ROW ─▶ Proof ─▶ table and page
deliveries ─▶ got: GOT_ROW ─────┘

edges report              inside       outcome
acknowledged, or sent     or not       received, with its delay
dropped                   or not       not received, for the edge's reason
only matched              or not       not received: no record of sending
nothing                   yes          not received: reports refused, no edge there, entered late, or no record at the edge
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import orjson
import pandas as pd
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from milepost.model.areas import Area, Bounds, Going, holds_going
from milepost.model.instants import Instant
from milepost.model.places import Place, vectors
from milepost.model.reasons import Reason
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.rows import read
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS
from milepost.pipelines.pictures import Dot, Page, html
from milepost.pipelines.records import names_of
from milepost.wire.geojson import area_from_geojson

INSIDE_ROW: Final = """
    endpoint string, first_us bigint, last_us bigint, latitude double, longitude double, edge string, covered int,
    accepted bigint, refusal int
"""
"""An endpoint that was inside: its first and last report there; place, edge and `covered` (see REPORT_ROW) of the first one; the
number of accepted reports, and the reason of the last refusal."""

GOT_ROW: Final = """
    endpoint string, matched_us bigint, sent_us bigint, acknowledged_us bigint, dropped_us bigint, reason int, told_by string
"""
"""The delivery records of the message for one endpoint: the first time of each state; null: never."""

PROOF_ROW: Final = f"{INSIDE_ROW.rstrip()}, {GOT_ROW.split(',', 1)[1].strip()}"
"""INSIDE_ROW and GOT_ROW of each endpoint that has either."""

ANOTHER_EDGE = 1
NOBODY = 2
"""Values of `covered` in REPORT_ROW."""

FRESH_S: Final = 60
"""Maximum age of a report that proves where an endpoint was."""
VALID_S_MAX: Final = 3_600
"""Maximum part of a message's validity that is examined."""

HEAD: Final = ("endpoint", "inside", "edge", "outcome", "after", "why")

_SIGHTING = ("endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "edge", "covered", "verdict")


class NoProof(Exception):
    """There is nothing to prove; the text gives the reason to the user."""


@dataclass(frozen=True, slots=True)
class Covered:
    """A message to an area, and its deliveries."""

    source: str
    id: str
    topic: str
    said_us: int
    end_us: int
    area: Area
    proofs: "Sequence[Proof]"

    @property
    def counts(self) -> str:
        """The counts in one line, for the user."""
        insiders = [one for one in self.proofs if one.was_inside]
        have_it = sum(one.outcome.has_it for one in insiders)
        others = len(self.proofs) - len(insiders)
        missed = len(insiders) - have_it
        return f"{len(insiders)} were inside: {have_it} got it, {missed} did not; {others} others are known to edges"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table for the user; endpoints without the message come first."""
        return [self._row(one) for one in self.proofs]

    def page(self) -> str:
        """Return the HTML page with map and table."""
        dots = [
            Dot(Place(one.latitude, one.longitude), "good" if one.outcome.has_it else "bad", " · ".join(self._row(one)))
            for one in self.proofs
            if one.latitude is not None and one.longitude is not None
        ]
        legend = [("good", "got it"), ("bad", "did not")]
        title = f"Message {self.id} of {self.source} on {self.topic}: {self.counts}"
        return html(Page(title, dots, legend, HEAD, self.rows(), self.area))

    def _row(self, one: "Proof") -> tuple[str, ...]:
        span = "-"
        if one.first_us is not None and one.last_us is not None:
            span = f"{(one.first_us - self.said_us) / 1e6:+.1f} to {(one.last_us - self.said_us) / 1e6:+.1f} s"
        after = "-" if one.got_us is None else f"{(one.got_us - self.said_us) / 1e6:.3f} s"
        return one.endpoint, span, one.edge or one.told_by or "-", one.outcome.value, after, one.why(self.said_us) or "-"


class Outcome(Enum):
    """The outcome of the message for one endpoint."""

    ACKNOWLEDGED = "acknowledged"
    SENT = "sent"
    DROPPED = "dropped"
    MATCHED = "matched"
    MISSED = "missed"

    @property
    def has_it(self) -> bool:
        """Whether the endpoint received the message, as far as edges can know."""
        return self in (Outcome.ACKNOWLEDGED, Outcome.SENT)


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence about one endpoint and the message; a row of PROOF_ROW."""

    endpoint: str
    first_us: int | None
    last_us: int | None
    latitude: float | None
    longitude: float | None
    edge: str | None
    covered: int | None
    accepted: int | None
    refusal: int | None
    matched_us: int | None
    sent_us: int | None
    acknowledged_us: int | None
    dropped_us: int | None
    reason: int | None
    told_by: str | None

    @property
    def was_inside(self) -> bool:
        """Whether the endpoint was inside, by its own reports."""
        return self.first_us is not None

    @property
    def outcome(self) -> Outcome:
        """The best state in the delivery records."""
        if self.acknowledged_us is not None:
            return Outcome.ACKNOWLEDGED
        if self.sent_us is not None:
            return Outcome.SENT
        if self.dropped_us is not None:
            return Outcome.DROPPED
        return Outcome.MISSED if self.matched_us is None else Outcome.MATCHED

    @property
    def got_us(self) -> int | None:
        """When the message was sent; without a record of that, when the endpoint acknowledged it."""
        return self.acknowledged_us if self.sent_us is None else self.sent_us

    def why(self, said_us: int) -> str:
        """Return why the endpoint did not receive the message published at *said_us*; empty if it did."""
        match self.outcome:
            case Outcome.ACKNOWLEDGED | Outcome.SENT:
                return "" if self.was_inside else "was not inside by its own reports"
            case Outcome.DROPPED:
                return f"dropped by {self.told_by}: {_named(self.reason)}"
            case Outcome.MATCHED:
                return f"matched by {self.told_by}, but nothing says that it was sent"
            case Outcome.MISSED:
                return self._why_missed(said_us)

    def _why_missed(self, said_us: int) -> str:
        assert self.first_us is not None, "who was not inside and is in no delivery is in no proof"
        if not self.accepted:
            return f"its reports were refused: {_named(self.refusal)}"
        if self.covered == NOBODY:
            return "no edge covers the place"
        if self.covered == ANOTHER_EDGE:
            return f"was connected to {self.edge}, which does not cover the place"
        if self.first_us > said_us:
            return f"came in {(self.first_us - said_us) / 1e6:.1f} s after it was said"
        return f"{self.edge} has no record of it"


def _named(number: int | None) -> str:
    try:
        return Reason(number or 0).name
    except ValueError:
        return f"reason {number}"


def covered(
    session: SparkSession, archive: Path, message_id: str, *, source: str | None = None, time_window: TimeWindow = ALWAYS
) -> Covered:
    """Return the deliveries of a message; `time_window` is when it was published, to avoid a scan of the whole archive."""
    message = _message(session, archive, message_id, source, time_window)
    address = orjson.loads(message.address) if message.address else {}
    if address.get("to") != "area":
        raise NoProof(f"message {message_id} of {message.source} was not addressed to an area: nobody kept who got it")
    area = area_from_geojson(address["area"])
    start_us = message.seen_at_us
    end_us = min(message.valid_until_us, start_us + VALID_S_MAX * 1_000_000)
    if "incident" in address:
        end_us = _replaced_us(session, archive, message, address["incident"], end_us)
    around = TimeWindow(Instant((start_us - FRESH_S * 1_000_000) * 1_000), Instant(end_us * 1_000))
    # Reports from outside the area too: an endpoint that was inside a minute ago may have left.
    insiders = inside(read(session, archive, REPORTS, time_window=around), area, start_us=start_us, end_us=end_us)
    since = TimeWindow(around.start, Instant(around.end + FRESH_S * 1_000_000_000))
    takers = got(read(session, archive, DELIVERIES, time_window=since), source=message.source, message_id=message_id)
    proofs = [Proof(*row) for row in proof(insiders, takers).collect()]
    proofs.sort(key=lambda one: (one.outcome.has_it, not one.was_inside, one.endpoint))
    return Covered(message.source, message_id, message.topic, start_us, end_us, area, proofs)


def _replaced_us(session: SparkSession, archive: Path, message: Row, incident: str, end_us: int) -> int:
    """Return when a newer message about the same incident (an update or the all-clear) replaced this one; else *end_us*."""
    while_valid = TimeWindow(Instant(message.seen_at_us * 1_000), Instant(end_us * 1_000))
    same = (f.col("source") == message.source) & f.col("address").contains(orjson.dumps(incident).decode())
    later = read(session, archive, MESSAGES, time_window=while_valid).where(same & (f.col("seen_at_us") > message.seen_at_us))
    (first,) = later.agg(f.min("seen_at_us")).first() or (None,)
    return end_us if first is None else min(end_us, first)


def _message(session: SparkSession, archive: Path, message_id: str, source: str | None, time_window: TimeWindow) -> Row:
    found = read(session, archive, MESSAGES, time_window=time_window).where(f.col("id") == message_id)
    if source is not None:
        found = found.where(f.col("source") == source)
    rows = found.dropDuplicates(["source"]).collect()
    if not rows:
        raise NoProof(f"the archive has no message {message_id}{f' of {source}' if source else ''}, or it was unpublished")
    if len(rows) > 1:
        raise NoProof(f"message {message_id} is there from {', '.join(sorted(row.source for row in rows))}: say --source")
    return rows[0]


def inside(reports: DataFrame, area: Area, *, start_us: int, end_us: int) -> DataFrame:
    """Return INSIDE_ROW: endpoints in *area* at *start_us*, by their last report, or that entered it until *end_us*."""
    known = reports.where(f.col("seen_at_us") <= end_us).select(*_SIGHTING)
    is_before = f.col("seen_at_us") <= start_us
    last = (
        known.where(is_before).groupBy("endpoint").agg(f.max_by(f.struct(*_SIGHTING), "seen_at_us").alias("one")).select("one.*")
    )
    sightings = within(last.unionByName(known.where(~is_before)), area)
    return (
        sightings.groupBy("endpoint")
        .agg(
            f.min("seen_at_us").alias("first_us"),
            f.max("seen_at_us").alias("last_us"),
            *(f.min_by(name, "seen_at_us").alias(name) for name in ("latitude", "longitude", "edge", "covered")),
            f.count_if(f.col("verdict") == 0).alias("accepted"),
            f.max_by(f.col("verdict"), f.when(f.col("verdict") != 0, f.col("seen_at_us"))).alias("refusal"),
        )
        .select(*names_of(INSIDE_ROW))
    )


def within(rows: DataFrame, area: Area) -> DataFrame:
    """Return the rows whose place lies in *area*; if the area is on roads, only those that move in its direction."""

    def kept(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            going = Going(batch["heading_deg"].to_numpy(float), batch["speed_mps"].to_numpy(float))
            yield batch[holds_going(area, vectors(batch["latitude"], batch["longitude"]), going)]

    near = f.lit(False)
    for box in area.boxes:
        near = near | _in_box(box)
    # In Python, so that one function decides what an area contains.
    return rows.where(near).mapInPandas(kept, rows.schema)


def got(deliveries: DataFrame, *, source: str, message_id: str) -> DataFrame:
    """Return GOT_ROW: the delivery records of a message."""
    about = deliveries.where((f.col("source") == source) & (f.col("id") == message_id))
    states = ("matched", "sent", "acknowledged", "dropped")
    return (
        about.groupBy("endpoint")
        .agg(
            *(f.min(f.when(f.col("state") == state, f.col("at_us"))).alias(f"{state}_us") for state in states),
            f.max_by("reason", f.when(f.col("state") == "dropped", f.col("at_us"))).alias("reason"),
            f.max_by("edge", "at_us").alias("told_by"),
        )
        .select(*names_of(GOT_ROW))
    )


def proof(insiders: DataFrame, takers: DataFrame) -> DataFrame:
    """Return PROOF_ROW: each endpoint that was inside or is in a delivery record."""
    return insiders.join(takers, on="endpoint", how="full_outer").select(*names_of(PROOF_ROW))


def _in_box(box: Bounds) -> Column:
    latitude, longitude = f.col("latitude"), f.col("longitude")
    is_at_height = latitude.between(box.south, box.north)
    if box.west <= box.east:
        return is_at_height & longitude.between(box.west, box.east)
    return is_at_height & ((longitude >= box.west) | (longitude <= box.east))
