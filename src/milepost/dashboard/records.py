"""Decoding of a site's log records into facts for the scene; an undecodable record raises `Malformed` and is skipped."""

import zlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Final

import msgspec

from milepost.eventlog.log import Record
from milepost.incidents.engine import STATE
from milepost.model.incidents import Incident
from milepost.model.pipeline_records import DELIVERIES, PIPELINES, REPORTS
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import SUBSCRIPTION_INFO, EdgeInfo, ForwardedMessage, HubInfo, handler_topic
from milepost.wire.incidents import state_from_json
from milepost.wire.json_form.codec import Decoder
from milepost.wire.json_form.field_codecs import Digits
from milepost.wire.records import RECORD_BYTES_MAX, from_record

MESSAGES: Final = handler_topic(PIPELINES)
"""The topic of all messages that pipelines receive, including those to areas."""
TOPICS: Final = (SUBSCRIPTION_INFO, STATE, REPORTS, MESSAGES, DELIVERIES)

STATE_BYTES_MAX: Final = 32_000_000
"""Maximum size after decompression: some hundred thousand incidents."""


class ReportBatch(msgspec.Struct, frozen=True, tag_field="type", tag="reports"):
    """Position reports that an edge received, as columns."""

    edge: str
    endpoints: Sequence[str]
    seen_at_us: Sequence[int]
    latitudes: Sequence[float | None]
    longitudes: Sequence[float | None]
    headings_deg: Sequence[float | None]
    speeds_mps: Sequence[float | None]
    verdicts: Sequence[int]

    def __post_init__(self) -> None:
        _check_columns(
            self.endpoints, self.seen_at_us, self.latitudes, self.longitudes, self.headings_deg, self.speeds_mps, self.verdicts
        )


class DeliveryBatch(msgspec.Struct, frozen=True, tag_field="type", tag="deliveries"):
    """The delivery of one message to an area by an edge, as columns."""

    edge: str
    source: str
    id: Digits
    endpoints: Sequence[str]
    states: Sequence[str]
    at_us: Sequence[int]
    reasons: Sequence[int]

    def __post_init__(self) -> None:
        _check_columns(self.endpoints, self.states, self.at_us, self.reasons)


@dataclass(frozen=True, slots=True)
class ActiveIncidents:
    """All active incidents of a site."""

    incidents: tuple[Incident, ...]


@dataclass(frozen=True, slots=True)
class EdgeRemoved:
    """An edge was removed from its site."""

    key: str


class _EngineState(msgspec.Struct, frozen=True):
    """The stored state of the incident engine, of which the map needs the incidents."""

    incidents: msgspec.Raw


_REPORTS: Final = Decoder("reports", ReportBatch, bytes_max=RECORD_BYTES_MAX)
_DELIVERIES: Final = Decoder("deliveries", DeliveryBatch, bytes_max=RECORD_BYTES_MAX)
_STATES: Final = Decoder("state", _EngineState, bytes_max=STATE_BYTES_MAX)

Fact = ReportBatch | DeliveryBatch | ActiveIncidents | EdgeRemoved | EdgeInfo | HubInfo | ForwardedMessage


def maybe_fact(record: Record) -> Fact | None:
    """Return the fact in a record, or None if the map does not show it; raise `Malformed`."""
    if record.topic == SUBSCRIPTION_INFO:
        return _maybe_info(record)
    if record.value is None:
        return None
    if record.topic == REPORTS:
        return _REPORTS.decode(record.value)
    if record.topic == DELIVERIES:
        return _DELIVERIES.decode(record.value)
    if record.topic == STATE:
        return _incidents(record.value)
    found = from_record(record.value)
    return found if isinstance(found, ForwardedMessage) else None


def _maybe_info(record: Record) -> Fact | None:
    if not record.key.startswith("@"):  # a subscription
        return None
    if record.value is None:
        return EdgeRemoved(record.key)
    found = from_record(record.value)
    return found if isinstance(found, EdgeInfo | HubInfo) else None


def _check_columns(*columns: Sized) -> None:
    if len(set(map(len, columns))) != 1:
        raise Malformed(Reason.FIELD_TYPE, "columns differ in length")


def _incidents(value: bytes) -> ActiveIncidents:
    try:
        state = zlib.decompressobj().decompress(value, STATE_BYTES_MAX)
    except zlib.error as fault:
        raise Malformed(Reason.MALFORMED, f"the incident state cannot be decompressed: {fault}") from None
    return ActiveIncidents(state_from_json(bytes(_STATES.decode(state).incidents)).incidents)
