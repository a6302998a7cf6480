"""Records of a site's log as lines: one printable line each, whatever bytes a peer appended."""

import json
from typing import get_args

import pytest

from central_hub_in_memory import START, forwarded, held, ref
from milepost.cli.record_output import as_json, as_line
from milepost.eventlog.log import Record
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.site_records import (
    CROSS_HUB,
    ClaimNotice,
    EdgeInfo,
    EndpointClaim,
    EndpointPosition,
    EndpointPositions,
    Epoch,
    Handover,
    HandoverPart,
    HandoverTaken,
    HubInfo,
    Interest,
    MissedMessages,
    PrepareHandover,
    PriorEdge,
    SiteRecord,
)
from milepost.wire.records import to_record

CAR = EndpointId("car")
NORTH, SOUTH = ref("north/1"), ref("south/1")
SUBSCRIPTIONS = held("car", ("topic:x",))
CLAIM = EndpointClaim(CAR, NORTH, Epoch(7), clean_start_epoch=Epoch(6), asks_prior_edge=True)
RECORDS: dict[str, SiteRecord] = {
    "message north/1 9  x  from someone  hello": forwarded(NORTH, 9, "x", body=b"hello"),
    "handover north/1 to south/1  car  1 subscriptions, 0 queued": Handover(
        CAR, Epoch(7), NORTH, SOUTH, 1, subscriptions=SUBSCRIPTIONS
    ),
    "handover part north/1 to south/1  car  0 queued": HandoverPart(CAR, Epoch(7), NORTH, SOUTH, 1),
    "missed messages north/@hub to south/1  car  1 messages": MissedMessages(
        CAR, Epoch(7), ref("north/@hub"), SOUTH, 1, "north/1 1", (forwarded(NORTH, 9, "x"),)
    ),
    "handover taken south/1 to north/1  car": HandoverTaken(CAR, Epoch(7), SOUTH, NORTH, 1),
    "claim car at north/1 epoch 7 new session asks for prior edge": CLAIM,
    "positions at north/1  1 endpoints": EndpointPositions(NORTH, (EndpointPosition(CAR, Place(51.0, 7.0), None, None, START),)),
    "claim notice car by north/1 epoch 7": ClaimNotice(CLAIM),
    "prior edge car epoch 7: none": PriorEdge(CAR, Epoch(7), None),
    "prepare handover car from north/1  1 subscriptions": PrepareHandover(CAR, NORTH, Epoch(7), SUBSCRIPTIONS),
    "interest north/1  topic:x  (a b)": Interest(NORTH, SUBSCRIPTIONS[0].subscription),
    "edge north/1  no address  everywhere": EdgeInfo(NORTH),
    "hub c serves north": HubInfo("c", ("north",), START),
}


def record(value: bytes | None) -> Record:
    return Record(CROSS_HUB, 3, "a\nb", value, START)


def test_this_file_covers_every_type_of_record() -> None:
    assert {type(one) for one in RECORDS.values()} == set(get_args(SiteRecord))


@pytest.mark.parametrize(("line", "value"), RECORDS.items(), ids=[type(one).__name__ for one in RECORDS.values()])
def test_each_type_of_record_has_a_summary_line(line: str, value: SiteRecord) -> None:
    assert as_line("north", record(to_record(value))) == f"2027-01-15T08:00:00Z  north 3  {line}"


@pytest.mark.parametrize("value", [None, b"", b"\xff\x1b[31m", b"{}", b'"\n\x07"', b"[" * 10_000])
def test_any_value_is_one_printable_line(value: bytes | None) -> None:
    for line in (as_line("north", record(value)), as_json("north", record(value))):
        assert "\n" not in line
        assert line.isprintable()


def test_json_output_has_the_record_value_unchanged() -> None:
    found = json.loads(as_json("north", record(to_record(CLAIM))))
    assert (found["site"], found["offset"], found["key"]) == ("north", 3, "a\nb")
    assert found["value"]["type"] == "claim"
    assert json.loads(as_json("north", record(None)))["value"] is None


def test_pipeline_records_are_summarized_member_by_member() -> None:
    value = b'{"type": "reports", "edge": "north/1", "endpoints": ["a", "b"], "box": {}, "verdicts": [0, 0]}'
    assert as_line("north", record(value)).endswith("reports  edge north/1  2 endpoints  2 verdicts")
