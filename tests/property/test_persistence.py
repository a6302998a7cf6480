"""Persistence: stored messages, sessions and subscriptions decode to the originals."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.broker.publication import Publication
from milepost.broker.session import Session, SessionSubscription, SessionWill
from milepost.broker.state_codec import (
    details_from_bytes,
    details_to_bytes,
    publication_from_bytes,
    publication_to_bytes,
    session_from_bytes,
    session_to_bytes,
    subscription_from_bytes,
    subscription_to_bytes,
)
from milepost.model import FOREVER, EndpointId, Instant, Message, Place, Subscription
from milepost.wire.mqtt.properties import FORWARDED, forwarded, parse_forwarded
from strategies import endpoint_ids, instants, messages, places, subscriptions
from strategies_mqtt import properties

STORED = (
    "topic",
    "body",
    "seen_at",
    "source",
    "qos",
    "is_retained",
    "priority",
    "valid_until",
    "extras",
    "tags",
    "place",
    "address",
    "id",
    "fields",
    "signed",
)


any_extras = st.binary(max_size=40)
will_extras = properties(FORWARDED).map(forwarded)
"""The properties of a will, as the listener encodes them: the response topic is read from them again."""


@st.composite
def publications(draw: st.DrawFn, extras: st.SearchStrategy[bytes] = any_extras) -> Publication:
    message: Message = draw(messages())
    publication = Publication(
        message.topic,
        draw(st.just(b"") | st.binary(max_size=300)),
        message.seen_at,
        source=message.source,
        origin=draw(st.integers(0, 5)),
        qos=draw(st.integers(0, 2)),
        is_retained=draw(st.booleans()),
        priority=message.priority,
        valid_until=message.valid_until,
        extras=draw(st.none() | extras),
        tags=message.tags,
        place=message.place,
        address=message.address,
        fields=message.fields,
    )
    publication.id = message.id
    publication.signed = (message.signature, message.certificate) if message.signature and message.id else None
    return publication


def parts(publication: Publication) -> dict[str, object]:
    return {name: getattr(publication, name) for name in STORED}


@given(publications())
def test_a_stored_message_decodes_to_the_original(publication: Publication) -> None:
    back = publication_from_bytes(publication_to_bytes(publication))
    assert parts(back) == parts(publication)
    assert (back.number, back.stored_references, back.size) == (0, 0, publication.size)


delays = st.integers(0, 0xFFFF_FFFF * 1_000_000_000)


@given(
    endpoint_ids,
    delays,
    st.none() | instants,
    st.none() | st.tuples(publications(will_extras), delays, st.none() | delays),
    st.none() | places,
)
def test_a_stored_session_decodes_to_the_original(
    name: EndpointId,
    expiry_ns: int,
    expires_at: Instant | None,
    will: tuple[Publication, int, int | None] | None,
    place: Place | None,
) -> None:
    session = Session(name, 3)
    session.expiry_ns = expiry_ns
    session.expires_at = FOREVER if expires_at is None else expires_at
    session.will = SessionWill(*will) if will is not None else None
    back = session_from_bytes(session_to_bytes(session, place))
    assert back.place == place
    assert (back.name, back.expiry_ns, back.expires_at) == (name, expiry_ns, expires_at)
    assert (back.will is None) == (will is None)
    if back.will is not None and will is not None:
        assert parts(back.will.publication) == parts(will[0])
        assert back.will.publication.response_topic == (parse_forwarded(will[0].extras or b"").response_topic or "")
        assert (back.will.delay_ns, back.will.valid_ns) == will[1:]


@given(subscriptions, st.booleans(), st.booleans())
def test_a_stored_subscription_decodes_to_the_original(
    subscription: Subscription, no_local: bool, retain_as_published: bool
) -> None:
    back = subscription_from_bytes(
        subscription_to_bytes(SessionSubscription(subscription, 7, no_local=no_local, retain_as_published=retain_as_published))
    )
    assert back.subscription == subscription
    assert (back.no_local, back.retain_as_published, back.row) == (no_local, retain_as_published, -1)


@given(st.lists(st.integers(1, 2**32 - 1), max_size=4).map(tuple), st.booleans())
def test_the_stored_details_of_a_delivery_decode_to_the_original(
    subscription_ids: tuple[int, ...], has_retain_flag: bool
) -> None:
    assert details_from_bytes(details_to_bytes(subscription_ids, has_retain_flag=has_retain_flag)) == (
        subscription_ids,
        has_retain_flag,
    )
