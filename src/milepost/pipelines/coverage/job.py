"""A proof from the archive: the message, its area, and everybody who was inside or is in a delivery."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from milepost.model.areas import Area
from milepost.model.frames import ALWAYS, Frame
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.archive.reading import read
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS
from milepost.pipelines.coverage.transform import got, inside, proof
from milepost.pipelines.coverage.verdicts import Proof
from milepost.pipelines.pictures import Dot, Page, html
from milepost.wire.geojson import area_from_geojson

FRESH_S: Final = 60
"""Where an endpoint was is known by a report that is not older than this."""
VALID_S_MAX: Final = 3_600
"""Of a message that is valid for longer, so much is looked at."""

HEAD: Final = ("endpoint", "inside", "edge", "outcome", "after", "why")


class NoProof(Exception):
    """Why there is nothing to prove; the text is for the person who asked."""


@dataclass(frozen=True, slots=True)
class Covered:
    """A message to an area, and what became of it."""

    source: str
    id: str
    topic: str
    said_us: int
    end_us: int
    area: Area
    proofs: Sequence[Proof]

    @property
    def counts(self) -> str:
        """In one line."""
        insiders = [one for one in self.proofs if one.was_inside]
        have_it = sum(one.outcome.has_it for one in insiders)
        others = len(self.proofs) - len(insiders)
        missed = len(insiders) - have_it
        return f"{len(insiders)} were inside: {have_it} got it, {missed} did not; {others} others are known to edges"

    def rows(self) -> list[tuple[str, ...]]:
        """A table for people: those who did not get it first."""
        return [self._row(one) for one in self.proofs]

    def page(self) -> str:
        """A picture of it."""
        dots = [
            Dot(Place(one.latitude, one.longitude), "good" if one.outcome.has_it else "bad", " · ".join(self._row(one)))
            for one in self.proofs
            if one.latitude is not None and one.longitude is not None
        ]
        legend = [("good", "got it"), ("bad", "did not")]
        title = f"Message {self.id} of {self.source} on {self.topic}: {self.counts}"
        return html(Page(title, dots, legend, HEAD, self.rows(), self.area))

    def _row(self, one: Proof) -> tuple[str, ...]:
        span = "-"
        if one.first_us is not None and one.last_us is not None:
            span = f"{(one.first_us - self.said_us) / 1e6:+.1f} to {(one.last_us - self.said_us) / 1e6:+.1f} s"
        after = "-" if one.got_us is None else f"{(one.got_us - self.said_us) / 1e6:.3f} s"
        return one.endpoint, span, one.edge or one.told_by or "-", one.outcome.value, after, one.why(self.said_us) or "-"


def covered(
    session: SparkSession, archive: Path, message_id: str, *, source: str | None = None, frame: Frame = ALWAYS
) -> Covered:
    """What became of a message; `frame` says when it was said, so that not all of the archive is looked at."""
    message = _message(session, archive, message_id, source, frame)
    address = orjson.loads(message.address) if message.address else {}
    if address.get("to") != "area":
        raise NoProof(f"message {message_id} of {message.source} was not addressed to an area: nobody kept who got it")
    area = area_from_geojson(address["area"])
    start_us = message.seen_at_us
    end_us = min(message.valid_until_us, start_us + VALID_S_MAX * 1_000_000)
    if "incident" in address:
        end_us = _replaced_us(session, archive, message, address["incident"], end_us)
    around = Frame(Instant((start_us - FRESH_S * 1_000_000) * 1_000), Instant(end_us * 1_000))
    # Reports from elsewhere too: who was inside a minute ago may have left.
    insiders = inside(read(session, archive, REPORTS, frame=around), area, start_us=start_us, end_us=end_us)
    since = Frame(around.start, Instant(around.end + FRESH_S * 1_000_000_000))
    takers = got(read(session, archive, DELIVERIES, frame=since), source=message.source, message_id=message_id)
    proofs = [Proof(*row) for row in proof(insiders, takers).collect()]
    proofs.sort(key=lambda one: (one.outcome.has_it, not one.was_inside, one.endpoint))
    return Covered(message.source, message_id, message.topic, start_us, end_us, area, proofs)


def _replaced_us(session: SparkSession, archive: Path, message: Row, incident: str, end_us: int) -> int:
    """When something newer about the same incident took a message's place, or the last word on it was said; else when it ends."""
    while_valid = Frame(Instant(message.seen_at_us * 1_000), Instant(end_us * 1_000))
    same = (f.col("source") == message.source) & f.col("address").contains(orjson.dumps(incident).decode())
    later = read(session, archive, MESSAGES, frame=while_valid).where(same & (f.col("seen_at_us") > message.seen_at_us))
    (first,) = later.agg(f.min("seen_at_us")).first() or (None,)
    return end_us if first is None else min(end_us, first)


def _message(session: SparkSession, archive: Path, message_id: str, source: str | None, frame: Frame) -> Row:
    found = read(session, archive, MESSAGES, frame=frame).where(f.col("id") == message_id)
    if source is not None:
        found = found.where(f.col("source") == source)
    rows = found.dropDuplicates(["source"]).collect()
    if not rows:
        raise NoProof(f"the archive has no message {message_id}{f' of {source}' if source else ''}, or it was unpublished")
    if len(rows) > 1:
        raise NoProof(f"message {message_id} is there from {', '.join(sorted(row.source for row in rows))}: say --source")
    return rows[0]
