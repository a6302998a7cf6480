"""From records of a site's log to facts for the scene; what cannot be read is `Malformed`, and costs that record alone."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from milepost.backbone.log import Record
from milepost.hub.incidents.desk import STATE
from milepost.model.incidents import Incident
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import SUBSCRIPTION_INFO, CentreInfo, EdgeInfo, Said, publish_to
from milepost.model.telling import DELIVERIES, PIPELINES, REPORTS
from milepost.wire.incidents import state_from_json
from milepost.wire.records import from_record

SAID: Final = publish_to(PIPELINES)
"""Where all messages stand that pipelines hear of, those to areas too."""
TOPICS: Final = (SUBSCRIPTION_INFO, STATE, REPORTS, SAID, DELIVERIES)

STATE_BYTES_MAX: Final = 32_000_000
"""Unpacked: some hundred thousand incidents."""

_REPORT_COLUMNS: Final = ("endpoints", "seen_at_us", "latitudes", "longitudes", "headings_deg", "speeds_mps", "verdicts")
_DELIVERY_COLUMNS: Final = ("endpoints", "states", "at_us", "reasons")


@dataclass(frozen=True, slots=True)
class ReportsHeard:
    """Reports of places that an edge heard, as columns."""

    edge: str
    endpoints: Sequence[str]
    seen_at_us: Sequence[int]
    latitudes: Sequence[float | None]
    longitudes: Sequence[float | None]
    headings_deg: Sequence[float | None]
    speeds_mps: Sequence[float | None]
    verdicts: Sequence[int]


@dataclass(frozen=True, slots=True)
class DeliveriesHeard:
    """What became of one message to an area at an edge, as columns."""

    edge: str
    source: str
    id: int
    endpoints: Sequence[str]
    states: Sequence[str]
    at_us: Sequence[int]
    reasons: Sequence[int]


@dataclass(frozen=True, slots=True)
class IncidentsKnown:
    """All incidents of a site that live."""

    incidents: tuple[Incident, ...]


@dataclass(frozen=True, slots=True)
class EdgeGone:
    """An edge was taken out of its site."""

    key: str


Fact = ReportsHeard | DeliveriesHeard | IncidentsKnown | EdgeGone | EdgeInfo | CentreInfo | Said


def maybe_fact(record: Record) -> Fact | None:
    """What a record says, if it is about anything that the map shows; raises `Malformed`."""
    if record.topic == SUBSCRIPTION_INFO:
        return _maybe_info(record)
    if record.value is None:
        return None
    if record.topic == REPORTS:
        found, columns = _columns(record.value, "reports", _REPORT_COLUMNS)
        return ReportsHeard(found["edge"], *columns)
    if record.topic == DELIVERIES:
        found, columns = _columns(record.value, "deliveries", _DELIVERY_COLUMNS)
        return DeliveriesHeard(found["edge"], str(found["source"]), _whole(found["id"]), *columns)
    if record.topic == STATE:
        return _incidents(record.value)
    said = from_record(record.value)
    return said if isinstance(said, Said) else None


def _maybe_info(record: Record) -> Fact | None:
    if not record.key.startswith("@"):  # what somebody wants
        return None
    if record.value is None:
        return EdgeGone(record.key)
    found = from_record(record.value)
    return found if isinstance(found, EdgeInfo | CentreInfo) else None


def _columns(value: bytes, kind: str, names: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    """The members of an object, and its columns, which are equally long."""
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault}") from None
    if not isinstance(found, dict) or found.get("type") != kind or not isinstance(found.get("edge"), str):
        raise Malformed(Reason.MALFORMED, f"no {kind}")
    columns = [found.get(name) for name in names]
    sizes = {len(column) if isinstance(column, list) else -1 for column in columns}
    if len(sizes) != 1 or sizes == {-1}:
        raise Malformed(Reason.FIELD_TYPE, f"the columns of {kind} are no lists of one length")
    return found, columns


def _whole(value: object) -> int:
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 20:
        raise Malformed(Reason.FIELD_TYPE, "the id is no number")
    return int(value)


def _incidents(value: bytes) -> IncidentsKnown:
    unpacking = zlib.decompressobj()
    try:
        state = orjson.loads(unpacking.decompress(value, STATE_BYTES_MAX))
    except (zlib.error, ValueError) as fault:
        raise Malformed(Reason.MALFORMED, f"no state of incidents: {fault}") from None
    if not isinstance(state, dict):
        raise Malformed(Reason.MALFORMED, "no state of incidents")
    return IncidentsKnown(state_from_json(orjson.dumps(state.get("incidents"))).incidents)
