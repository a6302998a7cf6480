"""The incident engine of a site: cells in, numbered alerts and answers out, and a state to resume from (M24, M25)."""

import orjson

from milepost.incidents.engine import STATE, EngineAppend, IncidentEngine
from milepost.model.addresses import ToArea, ToEndpoint
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EventKind
from milepost.model.messages import Message, MessageId
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, inbox_topic
from milepost.trust.certificates import SERVICE, Certificate, CertificateAuthority, issue
from milepost.trust.signing import Signer, Verifier, signing_public_of
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record, to_record
from unit.incidents.events import HOME, after, cells_of, events

KIND = EventKind("Collision", "Collision", "reports >= 5", "Alert/Collision", slots=1, valid_s=600)
EDGE, FAR = EdgeRef("north", "n1"), EdgeRef("south", "s1")


def engine(state: bytes | None = None) -> IncidentEngine:
    """Return an engine without early warnings: it starts after the slots of the tests."""
    return IncidentEngine("north", [KIND], allowed_lateness_s=2.0, since=after(10_000), state=state)


def cells(seconds: float = 1.0) -> list[bytes | None]:
    return [cell_to_json(cell) for cell in cells_of(KIND, events(5, seconds=seconds))]


def message_of(append: EngineAppend) -> ForwardedMessage:
    value = from_record(append.value)
    assert isinstance(value, ForwardedMessage)
    return value


def question(body: bytes = b"", *, sender: EdgeRef = EDGE, with_place: bool = True) -> bytes:
    message = Message(
        MessageId(1), EndpointId("truck-1"), "Area-of-Interest", after(5), place=HOME if with_place else None, body=body
    )
    return to_record(ForwardedMessage(sender, 7, message, qos=1))


def test_an_alert_is_published_after_the_allowed_lateness_and_followed_by_the_state() -> None:
    one = engine()
    one.add_cells(cells(), after(1))
    one.tick(after(11))
    assert one.take_appends() == []
    one.tick(after(12))
    alert, copy, state = one.take_appends()
    assert (alert.topic, copy.topic, state.topic) == (CROSS_HUB, "reserved.publish-pipelines", STATE)
    assert copy.value == alert.value, "the proof of coverage needs the same record"
    message = message_of(alert).message
    assert isinstance(message.address, ToArea)
    assert (message.topic, message.fields["phase"]) == ("Alert/Collision", "raised")
    assert message_of(alert).sender == EdgeRef("north", "@incidents")


def test_a_process_resumed_from_an_earlier_state_repeats_alerts_under_the_same_numbers() -> None:
    first = engine()
    first.add_cells(cells(), after(1))
    first.tick(after(12))
    state = first.take_appends()[-1].value
    first.tick(after(100))
    cleared = first.take_appends()
    second = engine(state)
    second.tick(after(100))
    assert second.take_appends() == cleared
    assert message_of(cleared[0]).message.fields["phase"] == "cleared"


def test_every_alert_and_all_clear_is_signed_alike_by_each_process() -> None:
    key = b"k" * 32
    certificate = service_certificate("incidents", key)
    alerts = []
    for _ in range(2):
        one = IncidentEngine("north", [KIND], allowed_lateness_s=2.0, since=after(10_000), sign=Signer(key, certificate).sign)
        one.add_cells(cells(), after(1))
        one.tick(after(12))
        one.tick(after(100))
        alerts.append([append.value for append in one.take_appends() if append.topic == CROSS_HUB])
    assert alerts[0] == alerts[1]
    verifier = Verifier(CertificateAuthority(signing_public_of(key)))
    for value in alerts[0]:
        record = from_record(value)
        assert isinstance(record, ForwardedMessage)
        assert verifier.check(record.message, record.message.seen_at) == ("service", "incidents")
    assert len(alerts[0]) == 2


def service_certificate(name: str, key: bytes) -> Certificate:
    """Return the certificate of a service, signed with its own key."""
    return issue(
        key,
        id=name,
        role=SERVICE,
        key=bytes(32),
        not_before=after(-1_000),
        not_after=after(1_000),
        serial=1,
        signing_key=signing_public_of(key),
    )


def test_numbers_grow_with_every_alert() -> None:
    one = engine()
    one.add_cells(cells() + cells(25.0), after(25))
    one.tick(after(200))
    numbers = [message_of(append).number for append in one.take_appends() if append.topic == CROSS_HUB]
    assert len(numbers) >= 2
    assert numbers == sorted(set(numbers))


def test_a_question_is_answered_with_the_conditions_around_its_place() -> None:
    one = engine()
    one.add_cells(cells(), after(1))
    one.tick(after(12))
    one.take_appends()
    one.answer_question(4, question(), after(13))
    one.save_if_due(after(13))
    answer, state = one.take_appends()
    assert answer.topic == inbox_topic(EDGE)
    message = message_of(answer).message
    assert (message.topic, message.address) == ("Area-of-Interest/accept", ToEndpoint(EndpointId("truck-1")))
    (kind,) = orjson.loads(message.body)["kinds"]
    assert (kind["kind"], len(kind["incidents"])) == ("Collision", 1)
    assert engine(state.value).questions_from == 5


def test_an_area_far_away_has_no_incident() -> None:
    one = engine()
    one.add_cells(cells(), after(1))
    one.tick(after(12))
    one.take_appends()
    one.answer_question(0, question(b'{"area": "circle 10,10 500"}'), after(13))
    (kind,) = orjson.loads(message_of(one.take_appends()[0]).message.body)["kinds"]
    assert kind["incidents"] == []


def test_a_question_from_another_site_is_answered_through_the_hub() -> None:
    one = engine()
    one.answer_question(0, question(sender=FAR), after(13))
    assert one.take_appends()[0].topic == CROSS_HUB


def test_an_invalid_question_is_answered_with_its_fault() -> None:
    one = engine()
    for value in (question(b"nonsense"), question(b"{}"), question(b'{"area": "circle x"}'), question(with_place=False)):
        one.answer_question(0, value, after(13))
    answers = [message_of(append).message for append in one.take_appends() if append.topic != STATE]
    assert [message.topic for message in answers] == ["Area-of-Interest/reject"] * 4
    assert all(orjson.loads(message.body)["detail"] for message in answers)
    assert one.counts.rejected == 4


def test_unreadable_cells_and_questions_are_only_counted() -> None:
    one = engine()
    one.add_cells([b"nonsense", None, b"{}"], after(13))
    one.answer_question(0, b"nonsense", after(13))
    one.answer_question(1, None, after(13))
    assert one.counts.unreadable == 4
    assert one.take_appends() == []


def test_witnesses_have_the_weight_of_their_reputation_once_it_is_read() -> None:
    kind = EventKind("Collision", "Collision", "weight >= 3", "Alert/Collision", slots=1)
    for scores, alerts in (({}, 1), ({"car-0": 0.5}, 0), ({"car-0": 1.0}, 1)):
        one = IncidentEngine("north", [kind], allowed_lateness_s=2.0, since=after(10_000))
        one.add_scores((name, score_of(name, score)) for name, score in scores.items())
        one.add_cells([cell_to_json(cell) for cell in cells_of(kind, events(3))], after(1))
        one.tick(after(12))
        assert one.counts.alerts == alerts


def test_an_unreadable_score_is_only_counted() -> None:
    one = engine()
    one.add_scores([("car-0", b"nonsense"), ("car-0", score_of("another", 0.5))])
    assert one.counts.unreadable == 2
    assert one.incidents.weights == {}


def score_of(name: str, score: float) -> bytes:
    return orjson.dumps({"type": "reputation", "endpoint": name, "score": score, "at_us": 1, "reasons": []})


def test_an_unreadable_cell_with_most_reports_does_not_hide_a_readable_one() -> None:
    one = engine()
    (whole,) = cells()
    assert whole is not None
    broken = orjson.dumps(orjson.loads(whole) | {"reports": 9, "witness_count": -1})
    one.add_cells([broken, whole, b"{", None], after(1))
    one.tick(after(12))
    assert len(one.incidents.active) == 1
    assert one.counts.unreadable == 2


def test_of_equal_cells_of_a_batch_only_those_with_most_reports_are_decoded() -> None:
    one = engine()
    (whole,) = cells()
    assert whole is not None
    earlier = orjson.dumps(orjson.loads(whole) | {"reports": 4, "witness_count": -1})
    one.add_cells([earlier, whole], after(1))
    assert one.counts.unreadable == 0
