"""Records of a site's log survive encoding and decoding, and other bytes are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import OnTopic
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import (
    ClaimNotice,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    EndpointPosition,
    EndpointPositions,
    Epoch,
    ForwardedMessage,
    Handover,
    HandoverPart,
    HandoverTaken,
    HeldSubscription,
    HubInfo,
    Interest,
    MissedMessages,
    PrepareHandover,
    PriorEdge,
    QueuedMessage,
    SiteRecord,
)
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record, to_record

numbers = st.integers(0, 2**63 - 1)
instants = st.builds(Instant, st.integers(0, 2**63 - 2))
names = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
refs = st.builds(EdgeRef, names, names)
endpoints = st.builds(EndpointId, names)
epochs = st.builds(Epoch, numbers)
places = st.builds(Place, st.floats(-90, 90), st.floats(-180, 180))
subscriptions = st.builds(Subscription, endpoints, st.builds(OnTopic, st.sampled_from(["a/b", "#", "+/c"])))
marks = st.dictionaries(st.one_of(st.just("*"), refs.map(str)), numbers, max_size=3)
held = st.builds(HeldSubscription, st.text(min_size=1, max_size=10), subscriptions, st.booleans(), st.booleans(), marks)
helds = st.lists(held, max_size=3).map(tuple)
queued_messages = st.builds(
    QueuedMessage,
    st.integers(1, 65_535),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 99), max_size=2).map(tuple),
    st.booleans(),
    st.one_of(st.just(""), refs.map(str)),
    numbers,
    st.binary(max_size=30),
)
queued_lists = st.lists(queued_messages, max_size=3).map(tuple)
messages = st.builds(
    Message,
    st.builds(MessageId, numbers.map(lambda number: number or 1)),
    endpoints,
    st.sampled_from(["a/b", "c"]),
    instants,
    place=st.one_of(st.none(), places),
    body=st.binary(max_size=30),
)
forwarded = st.builds(
    ForwardedMessage,
    refs,
    numbers,
    messages,
    st.integers(0, 2),
    st.booleans(),
    st.one_of(st.none(), st.binary(max_size=9)),
    st.lists(names, max_size=2).map(tuple),
)
handovers = st.builds(
    Handover,
    endpoints,
    epochs,
    refs,
    refs,
    numbers,
    is_complete=st.booleans(),
    has_session=st.booleans(),
    expiry_ns=numbers,
    place=st.one_of(st.none(), places),
    subscriptions=helds,
    queued=queued_lists,
    received=st.lists(st.integers(1, 65_535), max_size=3).map(tuple),
    cursors=marks,
    offset=numbers,
    as_of=instants,
    parts=st.integers(0, 9),
    began=epochs,
    clean_start_epoch=epochs,
    awaits=st.dictionaries(names, st.lists(names, max_size=2).map(tuple), max_size=2),
    offsets=st.dictionaries(names, numbers, max_size=2),
)
forwarded_lists = st.lists(forwarded, max_size=3).map(tuple)
speeds = st.one_of(st.none(), st.floats(0, 90))
seen = st.builds(EndpointPosition, endpoints, places, speeds, speeds, instants)
claims = st.builds(EndpointClaim, endpoints, refs, epochs, epochs, st.booleans(), st.one_of(st.none(), places))
records = st.one_of(
    claims,
    forwarded,
    handovers,
    st.builds(HandoverPart, endpoints, epochs, refs, refs, numbers, queued_lists, helds),
    st.builds(MissedMessages, endpoints, epochs, refs, refs, numbers, names, forwarded_lists, st.booleans()),
    st.builds(ClaimNotice, claims),
    st.builds(PriorEdge, endpoints, epochs, st.one_of(st.none(), refs)),
    st.builds(EndpointPositions, refs, st.lists(seen, max_size=3).map(tuple)),
    st.builds(HandoverTaken, endpoints, epochs, refs, refs, numbers, helds),
    st.builds(PrepareHandover, endpoints, refs, epochs, helds),
    st.builds(Interest, refs, subscriptions),
    st.builds(
        EdgeInfo, refs, st.none(), st.lists(st.tuples(st.integers(-900, 900), st.integers(-900, 900)), max_size=3).map(tuple)
    ),
    st.builds(HubInfo, names, st.lists(names, max_size=3).map(tuple), instants),
)


@given(records)
def test_a_record_survives_encoding_and_decoding(record: SiteRecord) -> None:
    assert from_record(to_record(record)) == record


@given(records, st.integers(2, 99))
def test_a_record_carries_its_version_and_a_newer_one_is_refused_as_such(record: SiteRecord, version: int) -> None:
    data = to_record(record)
    assert data.startswith(b'{"v":1,"type":"')
    with pytest.raises(Malformed) as caught:
        from_record(data.replace(b'{"v":1,', b'{"v":%d,' % version, 1))
    assert caught.value.reason is Reason.VERSION_UNKNOWN


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_other_bytes_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(Malformed):
        from_record(data)


@given(records, st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_damaged_record_is_decoded_or_refused_as_malformed(record: SiteRecord, at: int, other: bytes) -> None:
    data = bytearray(to_record(record))
    at %= len(data)
    data[at : at + 1] = other
    with suppress(Malformed):  # any other error fails
        from_record(bytes(data))
