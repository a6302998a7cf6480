from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.eventlog.log import RECORD_BYTES_MAX, Entry
from milepost.handlers import ledger
from milepost.handlers.handler import ANSWER_BYTES_MAX
from milepost.handlers.partition import REQUEST_BYTES_MAX
from milepost.handlers.records import (
    DeadLetter,
    HandlerRequest,
    Note,
    StoredValue,
    dead_letter_from_bytes,
    dead_letter_to_bytes,
    note_from_bytes,
    note_to_bytes,
    request_from_record,
    retry_record,
    stored_value_from_bytes,
    stored_value_to_bytes,
)
from milepost.handlers.store import Store, StoreFault, StoreValues
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.site_records import EdgeRef, Epoch, ForwardedMessage, PriorEdge
from milepost.wire.records import to_record

ENTRIES = st.builds(Entry, st.text("ab.-", min_size=1), st.text(max_size=5), st.binary())
FORWARDED = ForwardedMessage(
    EdgeRef("north", "edge-1"), 5, Message(MessageId(1), EndpointId("truck-7"), "a", Instant(1), body=b"x"), qos=1
)


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**63), st.lists(ENTRIES))
def test_a_note_survives_a_round_trip(fence: int, position: int, number: int, pending: list[Entry]) -> None:
    note = Note(fence, 4, {"a": position, "b": 0}, {"north/edge-1": number}, number, 3, 2, tuple(pending))
    assert note_from_bytes(note_to_bytes(note)) == note


def test_the_largest_note_fits_into_a_record() -> None:
    """A full batch, then one call with the largest changes and answer, or one whose request becomes a dead letter."""
    store = Store(StoreValues({}))
    with suppress(StoreFault):
        for number in range(1_000):
            store.put(f"{number:03d}" + "\\" * 500, "x" * 100)
    changes = [
        Entry("b" * 100, f"={key}", stored_value_to_bytes(StoredValue(10**9, value))) for key, value in store.changes.items()
    ]
    assert 100 < len(changes) < 1_000
    before = Entry("a", "b", b"x" * ledger.BATCH_BYTES_MAX)
    answer = Entry("i" * 120, "e" * 128, b"x" * (ANSWER_BYTES_MAX * 4 // 3 + 2_500))
    dead_letter = Entry("p", "0.1", b"x" * (REQUEST_BYTES_MAX + 1_500))
    last_numbers = {f"{number:048d}/{'e' * 48}": 2**63 for number in range(ledger.SENDERS_MAX)}
    for entries in ([*changes, answer], [dead_letter, answer._replace(value=b"x" * 2_500)]):
        note = Note(1, 1, {"a": 1}, last_numbers, 1, 1, 1, (before, *entries))
        assert len(note_to_bytes(note)) < RECORD_BYTES_MAX


@given(st.integers(0, 2**40), st.none() | st.binary(min_size=1))
def test_a_stored_value_survives_a_round_trip(revision: int, value: bytes | None) -> None:
    stored = StoredValue(revision, value)
    assert stored_value_from_bytes(stored_value_to_bytes(stored)) == stored


def test_a_dead_letter_survives_a_round_trip_and_counts_its_retries() -> None:
    letter = DeadLetter("no reason", 3, 1, Instant(7), to_record(FORWARDED))
    assert dead_letter_from_bytes(dead_letter_to_bytes(letter)) == letter
    assert request_from_record(retry_record(letter)) == HandlerRequest(FORWARDED, 2)
    assert request_from_record(to_record(FORWARDED)) == HandlerRequest(FORWARDED, 0)


@given(
    st.binary() | st.sampled_from([b'{"type":"retry"}', b'{"type":"retry","retries":1,"request":3}', b"{}", b"1 2 3\n", b"null"])
)
def test_an_undecodable_record_raises_value_error(data: bytes) -> None:
    for read in (request_from_record, note_from_bytes, dead_letter_from_bytes):
        with pytest.raises(ValueError, match=r".*"):
            read(data)


def test_a_record_of_another_type_is_not_a_request() -> None:
    with pytest.raises(ValueError, match="Prior"):
        request_from_record(to_record(PriorEdge(EndpointId("a"), Epoch(1), EdgeRef("n", "e"))))
