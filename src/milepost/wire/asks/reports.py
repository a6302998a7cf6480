"""Where the sender is, said along with something else: `milepost-report` on CONNECT and PUBLISH."""

from typing import Final

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reports import Report
from milepost.wire.asks.properties import UserProperties, Words, has_words
from milepost.wire.asks.texts import numbers_from_text

REPORT: Final = "milepost-report"


def report_from(user: UserProperties, *, sender: EndpointId, now: Instant) -> Report | None:
    """The report that comes with CONNECT; nothing if there is none."""
    return maybe_report(Words(user, (REPORT,)), sender=sender, seen_at=now) if has_words(user) else None


def maybe_report(words: Words, *, sender: EndpointId, seen_at: Instant) -> Report | None:
    """The report among the words of a packet; nothing if there is none."""

    def read(text: str) -> Report:
        latitude, longitude, *motion = numbers_from_text(text, "LATITUDE,LONGITUDE,HEADING_DEG,SPEED_MPS", 2)
        return Report(sender, Place(latitude, longitude), seen_at, *motion)

    return words.maybe(REPORT, read)
