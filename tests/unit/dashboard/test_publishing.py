import orjson
import pytest

from milepost.dashboard.publisher import ASK_BYTES_MAX, Publisher, ask_from_json, entries_of
from milepost.dashboard.records import SAID
from milepost.model.addresses import ToArea, ToContent, ToNotified
from milepost.model.areas import Circle
from milepost.model.incidents import EVENT_KINDS
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import CROSS_HUB, ForwardedMessage
from milepost.wire.records import from_record
from unit.dashboard.mirrors import START

KINDS = {kind.name: kind for kind in EVENT_KINDS}
ASK = {"type": "publish", "number": 1, "token": "t", "kind": "Collision", "latitude": 40.0, "longitude": -111.0}


def ask(**members: object) -> bytes:
    return orjson.dumps({name: value for name, value in (ASK | members).items() if value is not None})


def test_a_hazard_with_a_radius_is_an_alert_to_all_within() -> None:
    message = Publisher(KINDS).message(ask_from_json(ask(radius_m=300)), START)
    assert message.topic == "Alert/Collision"
    assert message.address == ToArea(Circle(Place(40.0, -111.0), 300.0), str(message.fields["incident"]))
    assert message.priority is KINDS["Collision"].priority
    assert message.fields["phase"] == "raised"


def test_one_without_is_a_report_like_any_other() -> None:
    message = Publisher(KINDS).message(ask_from_json(ask()), START)
    assert (message.topic, message.address, message.place) == ("Collision", ToContent(), Place(40.0, -111.0))


def test_an_all_clear_names_what_is_over() -> None:
    publisher = Publisher(KINDS)
    raised = publisher.message(ask_from_json(ask(radius_m=300)), START)
    cleared = publisher.message(ask_from_json(ask(radius_m=300, incident=raised.fields["incident"])), START)
    assert cleared.fields["incident"] == raised.fields["incident"]
    assert cleared.address == ToNotified((str(raised.fields["incident"]),))
    assert cleared.fields["phase"] == "cleared"
    assert cleared.id > raised.id


def test_it_goes_to_the_edges_and_to_pipelines() -> None:
    message = Publisher(KINDS).message(ask_from_json(ask(radius_m=300)), START)
    entries = entries_of(message, "north")
    assert [entry.topic for entry in entries] == [CROSS_HUB, SAID]
    for entry in entries:
        said = from_record(entry.value or b"")
        assert isinstance(said, ForwardedMessage)
        assert said.message == message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", Reason.MALFORMED),
        (b"[]", Reason.FIELD_TYPE),
        (ask(kind=None), Reason.FIELD_MISSING),
        (ask(latitude=91.0), Reason.COORDINATE_RANGE),
        (ask(radius_m=0), Reason.FIELD_RANGE),
        (ask(radius_m=1e9), Reason.FIELD_RANGE),
        (ask(kind="x" * ASK_BYTES_MAX), Reason.MESSAGE_TOO_LARGE),
    ],
)
def test_what_cannot_be_is_refused(data: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as refused:
        ask_from_json(data)
    assert refused.value.reason is reason


def test_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(Malformed, match="no kind"):
        Publisher(KINDS).message(ask_from_json(ask(kind="Meteor")), START)
