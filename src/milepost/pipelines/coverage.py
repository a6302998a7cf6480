"""Coverage: proof from the archive of which endpoints received an area message, for all that were inside or in a delivery.

reports ─▶ inside: INSIDE_ROW ────────────────────────┐
                                                      ├─▶ join_proof: PROOF_ROW ─▶ EndpointProof ─▶ table and page
deliveries ─▶ delivery_times: DELIVERY_TIMES_ROW ─────┘

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

from milepost.model.areas import Area, Bounds, Motion, contains_moving
from milepost.model.instants import Instant
from milepost.model.places import Place, vectors
from milepost.model.reasons import Reason
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.rows import read
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS
from milepost.pipelines.map_page import MapDot, MapPage, html
from milepost.pipelines.records import names_of
from milepost.wire.geojson import area_from_geojson

INSIDE_ROW: Final = """
    endpoint string, first_us bigint, last_us bigint, latitude double, longitude double, edge string, covered int,
    accepted bigint, refusal int
"""
"""An endpoint that was inside: its first and last report there; place, edge and `covered` (see REPORT_ROW) of the first one; the
number of accepted reports, and the reason of the last refusal."""

DELIVERY_TIMES_ROW: Final = """
    endpoint string, matched_us bigint, sent_us bigint, acknowledged_us bigint, dropped_us bigint, reason int, reported_by string
"""
"""The delivery records of the message for one endpoint: the first time of each state; null: never."""

PROOF_ROW: Final = f"{INSIDE_ROW.rstrip()}, {DELIVERY_TIMES_ROW.split(',', 1)[1].strip()}"
"""Schema of the columns of INSIDE_ROW and DELIVERY_TIMES_ROW, for each endpoint that has either."""

ANOTHER_EDGE = 1
NO_EDGE = 2
"""Values of `covered` in REPORT_ROW."""

REPORT_AGE_S_MAX: Final = 60
"""Maximum age of a report that proves where an endpoint was."""
VALID_S_MAX: Final = 3_600
"""Maximum part of a message's validity that is examined."""

HEAD: Final = ("endpoint", "inside", "edge", "outcome", "delay", "explanation")

_SIGHTING = ("endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "edge", "covered", "verdict")


class NoCoverageProof(Exception):
    """There is nothing to prove; the text gives the reason to the user."""


@dataclass(frozen=True, slots=True)
class CoverageProof:
    """A message to an area, and its deliveries."""

    source: str
    id: str
    topic: str
    published_us: int
    end_us: int
    area: Area
    proofs: "Sequence[EndpointProof]"

    @property
    def summary(self) -> str:
        """The counts in one line, for the user."""
        inside = [one for one in self.proofs if one.was_inside]
        received = sum(one.outcome.was_received for one in inside)
        others = len(self.proofs) - len(inside)
        missed = len(inside) - received
        return f"{len(inside)} endpoints inside: {received} received it, {missed} did not; {others} others in delivery records"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table for the user; endpoints without the message come first."""
        return [self._row(one) for one in self.proofs]

    def page(self) -> str:
        """Return the HTML page with map and table."""
        dots = [
            MapDot(Place(one.latitude, one.longitude), "good" if one.outcome.was_received else "bad", " · ".join(self._row(one)))
            for one in self.proofs
            if one.latitude is not None and one.longitude is not None
        ]
        legend = [("good", "received"), ("bad", "not received")]
        title = f"Message {self.id} of {self.source} on {self.topic}: {self.summary}"
        return html(MapPage(title, dots, legend, HEAD, self.rows(), self.area))

    def _row(self, one: "EndpointProof") -> tuple[str, ...]:
        span = "-"
        if one.first_us is not None and one.last_us is not None:
            span = f"{(one.first_us - self.published_us) / 1e6:+.1f} to {(one.last_us - self.published_us) / 1e6:+.1f} s"
        delay = "-" if one.received_us is None else f"{(one.received_us - self.published_us) / 1e6:.3f} s"
        return (
            one.endpoint,
            span,
            one.edge or one.reported_by or "-",
            one.outcome.value,
            delay,
            one.explanation(self.published_us) or "-",
        )


class DeliveryOutcome(Enum):
    """The outcome of the message for one endpoint."""

    ACKNOWLEDGED = "acknowledged"
    SENT = "sent"
    DROPPED = "dropped"
    MATCHED = "matched"
    MISSED = "missed"

    @property
    def was_received(self) -> bool:
        """Whether the endpoint received the message, as far as edges can know."""
        return self in (DeliveryOutcome.ACKNOWLEDGED, DeliveryOutcome.SENT)


@dataclass(frozen=True, slots=True)
class EndpointProof:
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
    reported_by: str | None

    @property
    def was_inside(self) -> bool:
        """Whether the endpoint was inside, by its own reports."""
        return self.first_us is not None

    @property
    def outcome(self) -> DeliveryOutcome:
        """The best state in the delivery records."""
        if self.acknowledged_us is not None:
            return DeliveryOutcome.ACKNOWLEDGED
        if self.sent_us is not None:
            return DeliveryOutcome.SENT
        if self.dropped_us is not None:
            return DeliveryOutcome.DROPPED
        return DeliveryOutcome.MISSED if self.matched_us is None else DeliveryOutcome.MATCHED

    @property
    def received_us(self) -> int | None:
        """When the message was sent; without a record of that, when the endpoint acknowledged it."""
        return self.acknowledged_us if self.sent_us is None else self.sent_us

    def explanation(self, published_us: int) -> str:
        """Return why the endpoint did not receive the message published at *published_us*; empty if it did."""
        match self.outcome:
            case DeliveryOutcome.ACKNOWLEDGED | DeliveryOutcome.SENT:
                return "" if self.was_inside else "outside the area, by its own reports"
            case DeliveryOutcome.DROPPED:
                return f"dropped by {self.reported_by}: {_reason_name(self.reason)}"
            case DeliveryOutcome.MATCHED:
                return f"matched by {self.reported_by}, without a record of sending"
            case DeliveryOutcome.MISSED:
                return self._explain_missed(published_us)

    def _explain_missed(self, published_us: int) -> str:
        assert self.first_us is not None, "a proof has only endpoints that were inside or are in a delivery record"
        if not self.accepted:
            return f"its reports were refused: {_reason_name(self.refusal)}"
        if self.covered == NO_EDGE:
            return "no edge covers the place"
        if self.covered == ANOTHER_EDGE:
            return f"connected to {self.edge}, which does not cover the place"
        if self.first_us > published_us:
            return f"entered {(self.first_us - published_us) / 1e6:.1f} s after publication"
        return f"{self.edge} has no record of it"


def _reason_name(number: int | None) -> str:
    try:
        return Reason(number or 0).name
    except ValueError:
        return f"reason {number}"


def prove_coverage(
    session: SparkSession, archive: Path, message_id: str, *, source: str | None = None, time_window: TimeWindow = ALWAYS
) -> CoverageProof:
    """Return the deliveries of a message; `time_window` is when it was published, to avoid a scan of the whole archive."""
    message = _message(session, archive, message_id, source, time_window)
    address = orjson.loads(message.address) if message.address else {}
    if address.get("to") != "area":
        raise NoCoverageProof(
            f"message {message_id} of {message.source} was not addressed to an area: only area messages have delivery records"
        )
    area = area_from_geojson(address["area"])
    start_us = message.seen_at_us
    end_us = min(message.valid_until_us, start_us + VALID_S_MAX * 1_000_000)
    if "incident" in address:
        end_us = _replaced_us(session, archive, message, address["incident"], end_us)
    around = TimeWindow(Instant((start_us - REPORT_AGE_S_MAX * 1_000_000) * 1_000), Instant(end_us * 1_000))
    # Reports from outside the area too: an endpoint that was inside a minute ago may have left.
    inside_rows = inside(read(session, archive, REPORTS, time_window=around), area, start_us=start_us, end_us=end_us)
    since = TimeWindow(around.start, Instant(around.end + REPORT_AGE_S_MAX * 1_000_000_000))
    delivery_rows = delivery_times(
        read(session, archive, DELIVERIES, time_window=since), source=message.source, message_id=message_id
    )
    proofs = [EndpointProof(*row) for row in join_proof(inside_rows, delivery_rows).collect()]
    proofs.sort(key=lambda one: (one.outcome.was_received, not one.was_inside, one.endpoint))
    return CoverageProof(message.source, message_id, message.topic, start_us, end_us, area, proofs)


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
        raise NoCoverageProof(
            f"the archive has no message {message_id}{f' of {source}' if source else ''}, or it was unpublished"
        )
    if len(rows) > 1:
        sources = ", ".join(sorted(row.source for row in rows))
        raise NoCoverageProof(f"message {message_id} exists from several sources, {sources}: choose one with --source")
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

    def filtered(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            motion = Motion(batch["heading_deg"].to_numpy(float), batch["speed_mps"].to_numpy(float))
            yield batch[contains_moving(area, vectors(batch["latitude"], batch["longitude"]), motion)]

    near = f.lit(False)
    for box in area.boxes:
        near = near | _in_box(box)
    # In Python, so that one function decides what an area contains.
    return rows.where(near).mapInPandas(filtered, rows.schema)


def delivery_times(deliveries: DataFrame, *, source: str, message_id: str) -> DataFrame:
    """Return DELIVERY_TIMES_ROW: the delivery records of a message."""
    about = deliveries.where((f.col("source") == source) & (f.col("id") == message_id))
    states = ("matched", "sent", "acknowledged", "dropped")
    return (
        about.groupBy("endpoint")
        .agg(
            *(f.min(f.when(f.col("state") == state, f.col("at_us"))).alias(f"{state}_us") for state in states),
            f.max_by("reason", f.when(f.col("state") == "dropped", f.col("at_us"))).alias("reason"),
            f.max_by("edge", "at_us").alias("reported_by"),
        )
        .select(*names_of(DELIVERY_TIMES_ROW))
    )


def join_proof(inside_rows: DataFrame, delivery_rows: DataFrame) -> DataFrame:
    """Return PROOF_ROW: each endpoint that was inside or is in a delivery record."""
    return inside_rows.join(delivery_rows, on="endpoint", how="full_outer").select(*names_of(PROOF_ROW))


def _in_box(box: Bounds) -> Column:
    latitude, longitude = f.col("latitude"), f.col("longitude")
    is_at_height = latitude.between(box.south, box.north)
    if box.west <= box.east:
        return is_at_height & longitude.between(box.west, box.east)
    return is_at_height & ((longitude >= box.west) | (longitude <= box.east))
