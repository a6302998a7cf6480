"""Client values ↔ messages and subscriptions; URLs, options and credentials."""

from pathlib import Path

import pytest

from milepost.client import Credentials, connect
from milepost.client.messages import OutgoingMessage, SubscriptionRequest, received_from_message
from milepost.client.subscriptions import SUBSCRIPTION_ID_MAX, ClientSubscriptions
from milepost.client.udp.discovery import UdpTarget, udp_target_of
from milepost.client.udp.mapping import subscription_of, udp_message_of
from milepost.client.urls import is_udp
from milepost.model.addresses import ToEveryone
from milepost.model.areas import Around
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId, MessageSigner, Scalar
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import And, OnTopic, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import tags
from milepost.runtime.trust_files import TrustFileType, write_new
from unit.client.udp.scripted_edge import CA_KEY, CAR, CAR_CERTIFICATE, CAR_KEY, EDGE_KEY, NOW

PLACE = Place(48.1, 11.6)


def test_a_publication_becomes_a_message() -> None:
    publication = OutgoingMessage(
        "road/i80",
        b"ice",
        tags(["ice"]),
        PLACE,
        ToEveryone(),
        Priority.SAFETY,
        seen_at=Instant(NOW - 5),
        valid_for_s=2.5,
        qos=2,
        properties=(("lane", "2"),),
    )
    message = udp_message_of(publication, CAR, MessageId(7), NOW)
    assert (message.source, message.id, message.topic, message.body, message.tags) == (CAR, 7, "road/i80", b"ice", tags(["ice"]))
    assert (message.place, message.address, message.priority, message.seen_at) == (PLACE, ToEveryone(), Priority.SAFETY, NOW - 5)
    assert (message.valid_until, message.reliable, message.fields) == (NOW + 5 * SECOND_NS // 2, True, {"lane": "2"})
    plain = udp_message_of(OutgoingMessage("a"), CAR, MessageId(1), NOW)
    assert (plain.seen_at, plain.valid_until, plain.reliable) == (NOW, FOREVER, False)


def test_a_message_is_received_as_published() -> None:
    publication = OutgoingMessage("road/i80", b"ice", tags(["ice"]), PLACE, qos=1, properties=(("lane", "2"),))
    received = received_from_message(
        udp_message_of(publication, CAR, MessageId(7), NOW), Instant(NOW + 1), MessageSigner("operator", CAR)
    )
    assert (received.topic, received.body, received.tags, received.place) == ("road/i80", b"ice", tags(["ice"]), PLACE)
    assert (received.source, received.id, received.qos, received.is_signed) == (CAR, 7, 1, True)
    assert (received.properties, received.received_at, received.message.id) == ((("lane", "2"),), NOW + 1, 7)


def test_fields_of_every_type_become_properties() -> None:
    fields: dict[str, Scalar] = {"a": True, "b": 2, "c": 0.5, "d": b"\x00", "e": "text"}
    received = received_from_message(Message(MessageId(1), CAR, "a", NOW, fields=fields), NOW, None)
    assert received.properties == (("a", "true"), ("b", "2"), ("c", "0.5"), ("d", "AA=="), ("e", "text"))


@pytest.mark.parametrize(
    "publication", [OutgoingMessage("a", retain=True), OutgoingMessage("a", properties=(("x", "1"), ("x", "2")))]
)
def test_publications_that_udp_cannot_carry_are_refused(publication: OutgoingMessage) -> None:
    with pytest.raises(Malformed, match="over udp"):
        udp_message_of(publication, CAR, MessageId(1), NOW)


def test_filter_and_query_must_both_match() -> None:
    request = SubscriptionRequest("road/#", parse_query("ice"), Around(500.0), qos=0, share="fleet")
    subscription = subscription_of(request, CAR, 9)
    assert (subscription.owner, subscription.id, subscription.area) == (CAR, 9, Around(500.0))
    assert (subscription.qos, subscription.share) == (0, "fleet")
    assert subscription.query == And((OnTopic("road/#"), parse_query("ice")))
    assert subscription_of(SubscriptionRequest("road/#"), CAR, 9).query == OnTopic("road/#")


class LastIdTaken(ClientSubscriptions[None]):
    """A table in which every id but the first is taken."""

    def is_free(self, subscription_id: int) -> bool:
        assert subscription_id <= SUBSCRIPTION_ID_MAX
        return subscription_id == 1


def test_a_subscription_id_is_derived_from_what_is_subscribed_to() -> None:
    table: ClientSubscriptions[None] = ClientSubscriptions()
    ice = table.id_for(SubscriptionRequest("road/#", parse_query("ice")))
    assert ice == table.id_for(SubscriptionRequest("road/#", parse_query("ice")))
    assert ice != table.id_for(SubscriptionRequest("road/#"))


def test_the_largest_subscription_id_is_followed_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.client.subscriptions.crc32", lambda _: SUBSCRIPTION_ID_MAX - 2)
    assert LastIdTaken().id_for(SubscriptionRequest("road/#")) == 1


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("udp://example.org", UdpTarget("udp", "example.org", 4242)),
        ("udp://[::1]:99", UdpTarget("udp", "::1", 99)),
        ("udp+srv://example.org", UdpTarget("udp+srv", "example.org", 4242)),
        ("udp+find://", UdpTarget("udp+find", "239.192.76.80", 4244)),
        (
            "udp+find://?group=239.1.2.3&port=99&interface=10.0.0.1",
            UdpTarget("udp+find", "239.1.2.3", 99, "10.0.0.1"),
        ),
    ],
)
def test_a_udp_url_is_decoded(url: str, target: UdpTarget) -> None:
    assert is_udp(url)
    assert udp_target_of(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "udp://",
        "udp://h:0",
        "udp://h:99999",
        "udp://ada@h",
        "udp://h/path",
        "udp://h?x=1",
        "udp+srv://h:99",
        "udp+srv://",
        "udp+find://h",
        "udp+find://?ports=1",
        "udp+find://?port=0",
        "udp+find://?port=x",
    ],
)
def test_an_invalid_udp_url_is_refused_with_the_reason(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        udp_target_of(url)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "place"),
        ({"place": PLACE, "user": "ada"}, "user is an option of MQTT only"),
        ({"place": PLACE, "will": OutgoingMessage("a")}, "will is an option of MQTT only"),
        ({"place": PLACE, "clean_start": True}, "clean_start is an option of MQTT only"),
        ({"place": PLACE, "keep_alive_s": 5}, "keep_alive_s is an option of MQTT only"),
        ({"place": PLACE, "edge_key": bytes(32)}, "edge_key"),
        ({"place": PLACE, "client_id": ""}, "ENDPOINT_ID"),
        ({"place": PLACE, "pending_max": 0}, "pending_max"),
    ],
)
def test_options_of_mqtt_are_refused_over_udp(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        connect("udp://127.0.0.1", **options)  # type: ignore[arg-type]  # that is the test


@pytest.mark.parametrize("option", [{"place": PLACE}, {"edge_key": bytes(32)}, {"resolver": ("127.0.0.1", 53)}])
def test_options_of_udp_are_refused_over_mqtt(option: dict[str, object]) -> None:
    with pytest.raises(Malformed, match="is an option of udp only"):
        connect("mqtt://127.0.0.1", **option)  # type: ignore[arg-type]  # that is the test


def test_the_endpoint_name_is_that_of_its_certificate() -> None:
    credentials = Credentials(CA_KEY, CAR_CERTIFICATE, CAR_KEY)
    assert connect("udp://127.0.0.1", place=PLACE, credentials=credentials).name == CAR
    with pytest.raises(Malformed, match="omit client_id"):
        connect("udp://127.0.0.1", place=PLACE, credentials=credentials, client_id="car-2")
    assert connect("udp://127.0.0.1", place=PLACE).name.startswith("client-")


def test_inconsistent_credentials_are_refused() -> None:
    with pytest.raises(Malformed) as fault:
        Credentials(CA_KEY, CAR_CERTIFICATE, EDGE_KEY)
    assert fault.value.reason is Reason.CERTIFICATE_INVALID
    with pytest.raises(Malformed, match="give both or neither"):
        Credentials(CA_KEY, CAR_CERTIFICATE)
    with pytest.raises(Malformed, match="bytes"):
        Credentials(b"short")


def test_credentials_are_read_from_the_files_of_milepost_trust(tmp_path: Path) -> None:
    for kind, data in (
        (TrustFileType.AUTHORITY, CA_KEY),
        (TrustFileType.CERTIFICATE, CAR_CERTIFICATE.data),
        (TrustFileType.KEY, CAR_KEY),
    ):
        write_new(tmp_path / kind.name, kind, data)
    files = {"ca": tmp_path / "AUTHORITY", "certificate": tmp_path / "CERTIFICATE", "key": tmp_path / "KEY"}
    assert Credentials.from_files(**files) == Credentials(CA_KEY, CAR_CERTIFICATE, CAR_KEY)
    with pytest.raises(Malformed, match="first line"):
        Credentials.from_files(ca=tmp_path / "KEY")
    (tmp_path / "KEY").write_text((tmp_path / "KEY").read_text().replace("=", "!"))
    with pytest.raises(Malformed, match="damaged"):
        Credentials.from_files(**files)
