"""The journal: whatever is stored of messages, sessions and subscriptions reads back as it was, in all its parts."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.broker.persistence import (
    asked_from_bytes,
    asked_to_bytes,
    details_from_bytes,
    details_to_bytes,
    publication_from_bytes,
    publication_to_bytes,
    session_from_bytes,
    session_to_bytes,
)
from milepost.broker.publication import Publication
from milepost.broker.session import Asked, Session, Will
from milepost.model import FOREVER, EndpointId, Instant, Message, Place, Subscription
from strategies import endpoint_ids, instants, messages, places, subscriptions

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


@st.composite
def publications(draw: st.DrawFn) -> Publication:
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
        extras=draw(st.none() | st.binary(max_size=40)),
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
def test_a_message_reads_back_as_it_was_stored(publication: Publication) -> None:
    back = publication_from_bytes(publication_to_bytes(publication))
    assert parts(back) == parts(publication)
    assert (back.number, back.holders, back.size) == (0, 0, publication.size)


delays = st.integers(0, 0xFFFF_FFFF * 1_000_000_000)


@given(
    endpoint_ids,
    delays,
    st.none() | instants,
    st.none() | st.tuples(publications(), delays, st.none() | delays),
    st.none() | places,
)
def test_a_session_reads_back_as_it_was_stored(
    name: EndpointId,
    expiry_ns: int,
    expires_at: Instant | None,
    will: tuple[Publication, int, int | None] | None,
    place: Place | None,
) -> None:
    session = Session(name, 3)
    session.expiry_ns = expiry_ns
    session.expires_at = FOREVER if expires_at is None else expires_at
    session.will = Will(*will) if will is not None else None
    back = session_from_bytes(session_to_bytes(session, place))
    assert back.place == place
    assert (back.name, back.expiry_ns, back.expires_at) == (name, expiry_ns, expires_at)
    assert (back.will is None) == (will is None)
    if back.will is not None and will is not None:
        assert parts(back.will.publication) == parts(will[0])
        assert (back.will.delay_ns, back.will.valid_ns) == will[1:]


@given(subscriptions, st.booleans(), st.booleans())
def test_a_subscription_reads_back_as_it_was_stored(subscription: Subscription, is_not_own: bool, is_retain_shown: bool) -> None:
    back = asked_from_bytes(asked_to_bytes(Asked(subscription, 7, is_not_own=is_not_own, is_retain_shown=is_retain_shown)))
    assert back.subscription == subscription
    assert (back.is_not_own, back.is_retain_shown, back.row) == (is_not_own, is_retain_shown, -1)


@given(st.lists(st.integers(1, 2**32 - 1), max_size=4).map(tuple), st.booleans())
def test_the_details_of_a_delivery_read_back_as_they_were_stored(labels: tuple[int, ...], is_from_store: bool) -> None:
    assert details_from_bytes(details_to_bytes(labels, is_from_store=is_from_store)) == (labels, is_from_store)
