"""The JSON form: refusals name the member, and the published schema lists the same members as the decoder."""

from typing import get_args

import orjson
import pytest

from milepost.model.areas.circle import RADIUS_M_MAX
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import BODY_BYTES_MAX, Message, MessageId
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import Init, SubscribeDatagram
from milepost.model.subscriptions import Subscription
from milepost.model.time_windows import TimeWindow
from milepost.wire.json_form import (
    FORMS,
    JSON_BYTES_MAX,
    SCHEMA_PATH,
    AddressForm,
    CellsForm,
    MessageNameForm,
    PlaceForm,
    SubscriptionNameForm,
    WindowForm,
    from_json,
    to_json,
)
from milepost.wire.json_form.codec import Form, member_names
from milepost.wire.json_form.field_codecs import AROUND_MEMBERS, CauseName, PriorityName

SCHEMA = orjson.loads(SCHEMA_PATH.read_bytes())
NOON = Instant(1_893_499_200 * SECOND_NS)
MESSAGE = Message(MessageId(2**64 - 1), EndpointId("truck-7"), "Collision", NOON)
REPORT = {
    "type": "report",
    "endpoint": "truck-7",
    "place": {"latitude": 40.5, "longitude": -111.5},
    "seen_at": "2030-01-01T12:00:00Z",
}
SUBSCRIPTION = {"type": "subscription", "owner": "truck-7", "query": "a"}


def refused(value: object) -> tuple[Reason, str]:
    with pytest.raises(Malformed) as found:
        from_json(value if isinstance(value, bytes) else orjson.dumps(value))
    return found.value.reason, found.value.detail


def message(**members: object) -> dict[str, object]:
    return orjson.loads(to_json(MESSAGE)) | members  # type: ignore[no-any-return]


def test_the_json_form_of_a_message() -> None:
    assert to_json(MESSAGE) == (
        b'{"v":1,"type":"message","id":"18446744073709551615","source":"truck-7","topic":"Collision","seen_at":"2030-01-01T12:00:00Z"}'
    )


def test_an_unknown_member_is_refused_with_the_nearest_known_one() -> None:
    assert refused(REPORT | {"spede_mps": 3}) == (
        Reason.FIELD_UNKNOWN,
        "report has a member 'spede_mps'; did you mean 'speed_mps'?",
    )
    reason, detail = refused(REPORT | {"qqq": 3})
    assert (reason, "known members: endpoint, heading_deg" in detail) == (Reason.FIELD_UNKNOWN, True)


def test_a_missing_member_is_named_with_its_path() -> None:
    assert refused(REPORT | {"place": {"latitude": 1}}) == (Reason.FIELD_MISSING, "report.place.longitude is missing")


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        ({"place": {"latitude": "1", "longitude": 2}}, "report.place.latitude is text, not a number"),
        ({"place": None}, "report.place is null, not an object"),
        ({"endpoint": 7}, "report.endpoint is a number, not text"),
        ({"heading_deg": True}, "report.heading_deg is true or false, not a number"),
    ],
)
def test_a_type_error_names_both_the_found_and_the_expected_type(members: dict[str, object], detail: str) -> None:
    assert refused(REPORT | members) == (Reason.FIELD_TYPE, detail)


def test_an_unknown_type_is_refused_with_the_nearest_known_one() -> None:
    reason, detail = refused({"type": "mesage"})
    assert (reason, detail.endswith("did you mean 'message'?")) == (Reason.FIELD_RANGE, True)


def test_members_of_another_type_are_refused() -> None:
    with pytest.raises(Malformed) as found:
        from_json(orjson.dumps(REPORT | {"type": "message"}))
    assert found.value.reason is Reason.FIELD_UNKNOWN


@pytest.mark.parametrize(
    "instant",
    ["now", "10 minutes ago", "12:00Z", "2030-01-01", "2030-01-01T12:00:00", "2030-01-01 12:00:00Z", "2030-01-01T12:00:00.Z"],
)
def test_phrases_for_instants_are_not_accepted_in_json(instant: str) -> None:
    assert refused(REPORT | {"seen_at": instant})[0] is Reason.TIME_UNREADABLE


def test_instants_are_exact_to_the_nanosecond_in_any_zone() -> None:
    found = from_json(orjson.dumps(REPORT | {"seen_at": "2030-01-01T14:00:00.000000001+02:00"}))
    assert isinstance(found, Report)
    assert found.seen_at == NOON + 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_time_window_may_be_a_phrase_where_the_reader_knows_the_time(wrapped: bool) -> None:
    members: dict[str, object] = {"type": "subscription", "owner": "truck-7", "query": "a", "time_window": "last 10 minutes"}
    data = orjson.dumps({"type": "subscribe", "session": "1", "subscription": members} if wrapped else members)
    found = from_json(data, now=NOON)
    subscription = found.subscription if isinstance(found, SubscribeDatagram) else found
    assert isinstance(subscription, Subscription)
    assert subscription.time_window == TimeWindow(Instant(NOON - 600 * 10**9), NOON)
    with pytest.raises(Malformed) as caught:
        from_json(data)
    assert caught.value.reason is Reason.TIME_UNREADABLE


def test_an_unknown_phrase_is_refused() -> None:
    subscription = {"type": "subscription", "owner": "truck-7", "query": "a", "time_window": "some other day"}
    with pytest.raises(Malformed) as caught:
        from_json(orjson.dumps(subscription), now=NOON)
    assert caught.value.reason is Reason.TIME_UNREADABLE


@pytest.mark.parametrize("member", ["valid_until", "seen_at"])
def test_forever_is_an_absent_member_and_its_number_is_refused(member: str) -> None:
    assert b"valid_until" not in to_json(MESSAGE)
    assert refused(message(**{member: "2262-04-11T23:47:16.854775807Z"}))[0] is Reason.TIME_RANGE


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**63])
def test_integers_beyond_53_bits_are_encoded_as_text(number: int) -> None:
    assert refused(message(fields={"x": number}))[0] is Reason.FIELD_RANGE
    if number < 2**63:
        found = from_json(orjson.dumps(message(fields={"x": {"integer": str(number)}})))
        assert isinstance(found, Message)
        assert found.fields == {"x": number}


@pytest.mark.parametrize("digits", ["", "01", "+1", "-1", " 1", "1.0", "1e3", "١"])
def test_ids_have_one_canonical_encoding(digits: str) -> None:
    assert refused(message(id=digits))[0] is Reason.FIELD_TYPE


@pytest.mark.parametrize("spelled", ["YQ", "YR==", "YQ==\n", "Y Q==", "_-8=", "YQ==YQ=="])
def test_bytes_have_one_canonical_encoding(spelled: str) -> None:
    assert refused(message(body=spelled))[0] is Reason.FIELD_TYPE


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'"\xff"', b'{"type":"\\ud800"}', b"[" * 5000, b'{"type": "message"} {}'])
def test_a_body_that_is_not_json_is_refused(text: bytes) -> None:
    assert refused(text)[0] is Reason.MALFORMED


def test_a_text_too_long_is_refused_before_it_is_parsed() -> None:
    assert refused(b"[" * (JSON_BYTES_MAX + 1))[0] is Reason.MESSAGE_TOO_LARGE


def test_the_largest_body_fits() -> None:
    largest = Message(MessageId(1), EndpointId("a"), "a", NOON, body=bytes(BODY_BYTES_MAX))
    assert from_json(to_json(largest)) == largest


def test_texts_that_are_too_long_are_not_encoded() -> None:
    with pytest.raises(Malformed) as found:
        to_json(Message(MessageId(1), EndpointId("a"), "a", NOON, fields={"x": "y" * JSON_BYTES_MAX}))
    assert found.value.reason is Reason.MESSAGE_TOO_LARGE


def test_a_lone_surrogate_is_not_written() -> None:
    with pytest.raises(Malformed) as found:
        to_json(Message(MessageId(1), EndpointId("a"), "a", NOON, fields={"x": "\ud800"}))
    assert found.value.reason is Reason.FIELD_RANGE


@pytest.mark.parametrize("members", [{}, {"type": "of tomorrow"}, {"new": 1}, {"place": 7}])
def test_a_newer_version_is_refused_as_such_whatever_its_content(members: dict[str, object]) -> None:
    assert refused(REPORT | members | {"v": 2}) == (Reason.VERSION_UNKNOWN, "v is 2, and only version 1 is known")


@pytest.mark.parametrize("version", ["1", None, True, 1.5])
def test_a_version_that_is_not_a_number_is_a_type_error(version: object) -> None:
    assert refused(REPORT | {"v": version})[0] is Reason.FIELD_TYPE


def test_a_text_without_a_version_has_version_1() -> None:
    assert from_json(orjson.dumps(REPORT)) == from_json(orjson.dumps(REPORT | {"v": 1}))


def test_an_object_inside_another_needs_a_type_only_where_there_is_a_choice() -> None:
    report = {name: held for name, held in REPORT.items() if name != "type"}
    assert isinstance(from_json(orjson.dumps({"type": "init", "report": report})), Init)
    name = {"source": "truck-7", "id": "1"}
    assert refused({"type": "received", "name": name}) == (Reason.FIELD_MISSING, "received.name.type is missing")


def test_a_feature_is_an_area_too() -> None:
    feature = {
        "type": "Feature",
        "id": 3,
        "properties": {"radius_m": 5, "colour": "red"},
        "geometry": {"type": "Point", "coordinates": [1, 2]},
    }
    found = from_json(orjson.dumps(SUBSCRIPTION | {"area": feature}))
    assert isinstance(found, Subscription)
    assert str(found.area).startswith("Circle(")


def members_in_schema(name: str) -> set[str]:
    return set(SCHEMA["$defs"][name]["properties"])


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("time_window", WindowForm),
        ("place", PlaceForm),
        *((str(form.__struct_config__.tag), form) for form in (*FORMS, MessageNameForm, SubscriptionNameForm)),
    ],
)
def test_the_schema_lists_the_members_of_the_decoder(name: str, form: type[Form]) -> None:
    assert members_in_schema(name) == member_names(form)


def test_the_schema_lists_the_members_of_objects_without_a_form_or_a_name() -> None:
    assert members_in_schema("around") == set(AROUND_MEMBERS)
    assert set(SCHEMA["$defs"]["acknowledge"]["properties"]["cells"]["properties"]) == member_names(CellsForm)


def test_the_schema_lists_the_names_and_limits_of_the_decoder() -> None:
    defs = SCHEMA["$defs"]
    assert set(defs["priority"]["enum"]) == set(PriorityName.WORDS)
    assert set(defs["close"]["properties"]["cause"]["enum"]) == set(CauseName.WORDS)
    assert {one["properties"]["to"]["const"]: set(one["properties"]) for one in defs["address"]["oneOf"]} == {
        form.__struct_config__.tag: member_names(form) for form in get_args(AddressForm)
    }
    assert defs["distance_m"]["exclusiveMaximum"] == RADIUS_M_MAX
