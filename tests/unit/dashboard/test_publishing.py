import orjson
import pytest

from milepost.dashboard.publisher import PUBLISH_REQUEST_BYTES_MAX, Publisher, entries_of, publish_request_from_json
from milepost.dashboard.records import MESSAGES
from milepost.model.addresses import ToArea, ToContent, ToNotified
from milepost.model.areas import Circle
from milepost.model.incidents import EVENT_KINDS
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.wire.records import from_record
from unit.dashboard.mirrors import START

KINDS = {kind.name: kind for kind in EVENT_KINDS}
REQUEST = {"type": "publish", "number": 1, "token": "t", "kind": "Collision", "latitude": 40.0, "longitude": -111.0}


def request(**members: object) -> bytes:
    return orjson.dumps({name: value for name, value in (REQUEST | members).items() if value is not None})


def test_a_hazard_with_a_radius_is_an_alert_to_that_circle() -> None:
    message = Publisher(KINDS).message(publish_request_from_json(request(radius_m=300)), START)
    assert message.topic == "Alert/Collision"
    assert message.address == ToArea(Circle(Place(40.0, -111.0), 300.0), str(message.fields["incident"]))
    assert message.priority is KINDS["Collision"].priority
    assert message.fields["phase"] == "raised"


def test_a_hazard_without_a_radius_is_an_ordinary_report() -> None:
    message = Publisher(KINDS).message(publish_request_from_json(request()), START)
    assert (message.topic, message.address, message.place) == ("Collision", ToContent(), Place(40.0, -111.0))


def test_an_all_clear_names_its_incident() -> None:
    publisher = Publisher(KINDS)
    raised = publisher.message(publish_request_from_json(request(radius_m=300)), START)
    cleared = publisher.message(publish_request_from_json(request(radius_m=300, incident=raised.fields["incident"])), START)
    assert cleared.fields["incident"] == raised.fields["incident"]
    assert cleared.address == ToNotified((str(raised.fields["incident"]),))
    assert cleared.fields["phase"] == "cleared"
    assert cleared.id > raised.id


def test_a_published_hazard_goes_to_edges_and_pipelines() -> None:
    message = Publisher(KINDS).message(publish_request_from_json(request(radius_m=300)), START)
    entries = entries_of(message, "north")
    assert [entry.topic for entry in entries] == [CROSS_HUB, MESSAGES]
    for entry in entries:
        found = from_record(entry.value or b"")
        assert isinstance(found, ForwardedMessage)
        assert found.message == message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", Reason.MALFORMED),
        (b"[]", Reason.FIELD_TYPE),
        (request(kind=None), Reason.FIELD_MISSING),
        (request(latitude=91.0), Reason.COORDINATE_RANGE),
        (request(radius_m=0), Reason.FIELD_RANGE),
        (request(radius_m=1e9), Reason.FIELD_RANGE),
        (request(kind="x" * PUBLISH_REQUEST_BYTES_MAX), Reason.MESSAGE_TOO_LARGE),
    ],
)
def test_an_invalid_publish_request_is_refused(data: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as refused:
        publish_request_from_json(data)
    assert refused.value.reason is reason


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Malformed, match="unknown kind"):
        Publisher(KINDS).message(publish_request_from_json(request(kind="Meteor")), START)
