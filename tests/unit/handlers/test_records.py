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
    Note,
    Request,
    StoredValue,
    dead_letter_from_bytes,
    dead_letter_to_bytes,
    note_from_bytes,
    note_to_bytes,
    request_again,
    request_from,
    stored_value_from_bytes,
    stored_value_to_bytes,
)
from milepost.handlers.store import Store, StoreFault, StoreValues
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.sites import EdgeRef, Epoch, ForwardedMessage, PriorEdge
from milepost.wire.records import to_record

ENTRIES = st.builds(Entry, st.text("ab.-", min_size=1), st.text(max_size=5), st.binary())
SAID = ForwardedMessage(
    EdgeRef("north", "edge-1"), 5, Message(MessageId(1), EndpointId("truck-7"), "a", Instant(1), body=b"x"), qos=1
)


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**63), st.lists(ENTRIES))
def test_a_note_is_read_as_it_was_written(fence: int, position: int, number: int, pending: list[Entry]) -> None:
    note = Note(fence, 4, {"a": position, "b": 0}, {"north/edge-1": number}, number, 3, 2, tuple(pending))
    assert note_from_bytes(note_to_bytes(note)) == note


def test_a_note_of_the_largest_things_fits_into_a_record() -> None:
    """What was at hand already, then one call that changes and says as much as it may, or one that is set aside whole."""
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
    aside = Entry("p", "0.1", b"x" * (REQUEST_BYTES_MAX + 1_500))
    last_numbers = {f"{number:048d}/{'e' * 48}": 2**63 for number in range(ledger.SENDERS_MAX)}
    for follows in ([*changes, answer], [aside, answer._replace(value=b"x" * 2_500)]):
        note = Note(1, 1, {"a": 1}, last_numbers, 1, 1, 1, (before, *follows))
        assert len(note_to_bytes(note)) < RECORD_BYTES_MAX


@given(st.integers(0, 2**40), st.none() | st.binary(min_size=1))
def test_a_value_is_read_as_it_was_written(revision: int, value: bytes | None) -> None:
    kept = StoredValue(revision, value)
    assert stored_value_from_bytes(stored_value_to_bytes(kept)) == kept


def test_a_dead_letter_comes_back_whole_and_knows_how_often_it_was_retried() -> None:
    letter = DeadLetter("no reason", 3, 1, Instant(7), to_record(SAID))
    assert dead_letter_from_bytes(dead_letter_to_bytes(letter)) == letter
    assert request_from(request_again(letter)) == Request(SAID, 2)
    assert request_from(to_record(SAID)) == Request(SAID, 0)


@given(st.binary() | st.sampled_from([b'{"type":"again"}', b'{"type":"again","times":1,"said":3}', b"{}", b"1 2 3\n", b"null"]))
def test_what_is_no_record_costs_a_value_error(data: bytes) -> None:
    for read in (request_from, note_from_bytes, dead_letter_from_bytes):
        with pytest.raises(ValueError, match=r".*"):
            read(data)


def test_a_record_of_another_kind_is_no_request() -> None:
    with pytest.raises(ValueError, match="Prior"):
        request_from(to_record(PriorEdge(EndpointId("a"), Epoch(1), EdgeRef("n", "e"))))
