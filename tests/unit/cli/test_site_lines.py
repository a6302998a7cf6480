"""Records of a site's log as lines: every kind in one line, whatever a peer wrote."""

import json
from typing import get_args

import pytest

from central_hub_in_memory import START, held, ref, say
from milepost.cli.record_output import as_json, as_line
from milepost.eventlog.log import Record
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.sites import (
    CROSS_HUB,
    Claim,
    ClaimNotice,
    EdgeInfo,
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
CLAIM = Claim(CAR, NORTH, Epoch(7), anew=Epoch(6), asks=True)
RECORDS: dict[str, SiteRecord] = {
    "said by north/1 9  x  from someone  hello": say(NORTH, 9, "x", body=b"hello"),
    "handover north/1 to south/1  car  1 subscriptions, 0 waiting": Handover(
        CAR, Epoch(7), NORTH, SOUTH, 1, subscriptions=SUBSCRIPTIONS
    ),
    "rest north/1 to south/1  car  0 waiting": HandoverPart(CAR, Epoch(7), NORTH, SOUTH, 1),
    "extra north/@centre to south/1  car  1 said": MissedMessages(
        CAR, Epoch(7), ref("north/@centre"), SOUTH, 1, (say(NORTH, 9, "x"),)
    ),
    "taken south/1 to north/1  car": HandoverTaken(CAR, Epoch(7), SOUTH, NORTH, 1),
    "claim car at north/1 epoch 7 anew asks": CLAIM,
    "places at north/1  1 endpoints": EndpointPositions(NORTH, (EndpointPosition(CAR, Place(51.0, 7.0), None, None, START),)),
    "claimed car by north/1 epoch 7": ClaimNotice(CLAIM),
    "prior car epoch 7: nowhere": PriorEdge(CAR, Epoch(7), None),
    "prepare for car from north/1  1 subscriptions": PrepareHandover(CAR, NORTH, Epoch(7), SUBSCRIPTIONS),
    "wanted at north/1  topic:x  (a b)": Interest(NORTH, SUBSCRIPTIONS[0].subscription),
    "edge north/1  no address  everywhere": EdgeInfo(NORTH),
    "centre c acts for north": HubInfo("c", ("north",), START),
}


def record(value: bytes | None) -> Record:
    return Record(CROSS_HUB, 3, "a\nb", value, START)


def test_every_kind_of_record_is_tried_here() -> None:
    assert {type(one) for one in RECORDS.values()} == set(get_args(SiteRecord))


@pytest.mark.parametrize(("line", "value"), RECORDS.items(), ids=[type(one).__name__ for one in RECORDS.values()])
def test_a_record_is_a_line_that_says_what_it_is(line: str, value: SiteRecord) -> None:
    assert as_line("north", record(to_record(value))) == f"2027-01-15T08:00:00Z  north 3  {line}"


@pytest.mark.parametrize("value", [None, b"", b"\xff\x1b[31m", b"{}", b'"\n\x07"', b"[" * 10_000])
def test_whatever_stands_there_is_one_line_that_can_be_shown(value: bytes | None) -> None:
    for line in (as_line("north", record(value)), as_json("north", record(value))):
        assert "\n" not in line
        assert line.isprintable()


def test_raw_records_are_json_with_their_value_as_it_stands() -> None:
    found = json.loads(as_json("north", record(to_record(CLAIM))))
    assert (found["site"], found["offset"], found["key"]) == ("north", 3, "a\nb")
    assert found["value"]["type"] == "claim"
    assert json.loads(as_json("north", record(None)))["value"] is None


def test_what_pipelines_write_is_shown_member_by_member() -> None:
    value = b'{"type": "reports", "edge": "north/1", "endpoints": ["a", "b"], "box": {}, "verdicts": [0, 0]}'
    assert as_line("north", record(value)).endswith("reports  edge north/1  2 endpoints  2 verdicts")
