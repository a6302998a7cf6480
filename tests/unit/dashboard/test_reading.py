from contextlib import suppress
from zlib import compress

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.dashboard.records import MESSAGES, TOPICS, ActiveIncidents, DeliveryBatch, EdgeRemoved, ReportBatch, maybe_fact
from milepost.eventlog.log import Record
from milepost.incidents.engine import STATE
from milepost.model.incidents import TrackerState
from milepost.model.pipeline_records import DELIVERIES, REPORTS
from milepost.model.reasons import Malformed
from milepost.model.site_records import SUBSCRIPTION_INFO, EdgeInfo, EdgeRef, edge_key
from milepost.wire.incidents import state_to_json
from milepost.wire.json_form.field_codecs import Digits
from milepost.wire.records import DeliveryRecord, ReportRecord, deliveries_to_record, reports_to_record, to_record
from unit.dashboard.mirrors import START, alert

WEST = EdgeRef("north", "west")
SENT = {"type": "deliveries", "edge": "a/b", "source": "x", "id": "1", "endpoints": [], "states": [], "at_us": [], "reasons": []}


def record(topic: str, value: bytes | None, key: str = "") -> Record:
    return Record(topic, 0, key, value, START)


def test_records_of_edges_are_decoded() -> None:
    numbers, whole = np.array([1.5, np.nan]), np.array([0, 3], np.uint16)
    written = ReportRecord(WEST, ["a", "b"], np.array([START, START]), numbers, numbers, numbers, numbers, whole, whole)
    found = maybe_fact(record(REPORTS, reports_to_record(written)))
    at = START // 1_000
    values = [1.5, None]
    assert found == ReportBatch("north/west", ["a", "b"], [at, at], values, values, values, values, [0, 3])
    sent = DeliveryRecord(WEST, "incidents", 2**64 - 1, "Alert", ["a"], ["sent"], [5], [0])
    found = maybe_fact(record(DELIVERIES, deliveries_to_record(sent)))
    assert found == DeliveryBatch("north/west", "incidents", Digits(2**64 - 1), ["a"], ["sent"], [5], [0])


def test_edges_messages_and_incidents_are_decoded() -> None:
    info = EdgeInfo(WEST)
    assert maybe_fact(record(SUBSCRIPTION_INFO, to_record(info), edge_key(WEST))) == info
    assert maybe_fact(record(SUBSCRIPTION_INFO, None, edge_key(WEST))) == EdgeRemoved(edge_key(WEST))
    assert maybe_fact(record(SUBSCRIPTION_INFO, b"a subscription", "north/west\ncar\n#")) is None
    assert maybe_fact(record(MESSAGES, to_record(alert(1)))) == alert(1)
    state = compress(orjson.dumps({"last": 1, "incidents": orjson.Fragment(state_to_json(TrackerState({}, ())))}))
    assert maybe_fact(record(STATE, state)) == ActiveIncidents(())


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b'{"type": "reports"}',
        orjson.dumps(SENT | {"id": "-1"}),
        orjson.dumps(SENT | {"endpoints": ["a"]}),
        orjson.dumps(SENT | {"endpoints": "a"}),
    ],
)
@pytest.mark.parametrize("topic", [REPORTS, DELIVERIES, STATE, MESSAGES])
def test_an_invalid_record_is_malformed(topic: str, value: bytes) -> None:
    with pytest.raises(Malformed):
        maybe_fact(record(topic, value))


@given(st.sampled_from(TOPICS), st.binary(max_size=200))
def test_arbitrary_records_raise_only_malformed(topic: str, value: bytes) -> None:
    with suppress(Malformed):
        maybe_fact(record(topic, value, "@x/y"))
