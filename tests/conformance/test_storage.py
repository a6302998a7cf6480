"""Conformance suite of storage, in memory and on disk."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faulty_storage import FaultyStorage
from milepost.broker.effects import Queued, StateChanges, Storage, StorageUnavailable, StoredState
from milepost.model.durability import Durability
from milepost.storage import MemoryStorage, SqliteStorage, open_storage
from storage_in_memory import StorageInMemory

LARGEST = 2**63 - 1
FULL = StateChanges(
    sessions={1: b"one", 2: b"", LARGEST: b"last"},
    subscriptions={(1, "a/#"): b"x", (1, ""): b"", (2, "a/#"): b"y"},
    retained={"a/b": b"r", "Ω\0語": b""},
    messages={1: b"m", 2: b"", LARGEST: bytes(range(256)) * 400},
    queued={(2, 7): Queued(1, 2, True, b"d"), (1, 9): Queued(2, 1, False, b""), (1, 3): Queued(1, 0, False, b"")},
    received={(1, 5): True, (2, 5): True, (2, 65_535): True},
)

Open = Callable[[], Storage]


@pytest.fixture(params=["in memory", Durability.PROCESS_CRASH, Durability.POWER_LOSS], ids=str)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the storage, and closes it before if it is open."""
    memory, opened = StorageInMemory(), list[Storage]()

    def make() -> Storage:
        if opened:
            opened.pop().close()
        is_memory = request.param == "in memory"
        opened.append(memory if is_memory else open_storage(tmp_path / "stored", request.param))
        return opened[-1]

    yield make
    for storage in opened:
        storage.close()


def equal(left: StoredState, right: StateChanges) -> bool:
    """Return whether all changes were stored, with the order of queued deliveries."""
    return (
        left.sessions == right.sessions
        and left.subscriptions == right.subscriptions
        and left.retained == right.retained
        and left.messages == right.messages
        and list(left.queued.items()) == list(right.queued.items())
        and sorted(left.received) == sorted(right.received)
    )


def test_a_new_storage_is_empty(reopen: Open) -> None:
    assert equal(reopen().load(), StateChanges())


def test_all_written_changes_survive_a_restart(reopen: Open) -> None:
    reopen().write(FULL)
    assert equal(reopen().load(), FULL)
    assert equal(reopen().load(), FULL)


def test_loaded_values_have_the_types_that_were_written(reopen: Open) -> None:
    reopen().write(FULL)
    queued = reopen().load().queued[2, 7]
    assert isinstance(queued, Queued)
    assert queued.is_released is True
    assert type(queued.details) is bytes


def test_an_empty_change_has_no_effect(reopen: Open) -> None:
    reopen().write(FULL)
    reopen().write(StateChanges())
    assert equal(reopen().load(), FULL)


def test_every_change_can_be_undone_one_by_one(reopen: Open) -> None:
    storage = reopen()
    storage.write(FULL)
    storage.write(
        StateChanges(
            subscriptions=dict.fromkeys(FULL.subscriptions),
            retained=dict.fromkeys(FULL.retained),
            messages=dict.fromkeys(FULL.messages),
            queued=dict.fromkeys(FULL.queued),
            received=dict.fromkeys(FULL.received),
        )
    )
    assert equal(storage.load(), StateChanges(sessions=FULL.sessions))
    reopen().write(StateChanges(sessions=dict.fromkeys(FULL.sessions)))
    assert equal(reopen().load(), StateChanges())


def test_removing_a_missing_entry_is_no_fault(reopen: Open) -> None:
    storage = reopen()
    storage.write(
        StateChanges(
            {1: None}, {(1, "a"): None}, {"a": None}, {1: None}, {(1, 1): None, (2, 2): None}, {(1, 1): None, (2, 2): None}
        )
    )
    assert equal(storage.load(), StateChanges())


def test_a_later_value_replaces_the_earlier_one(reopen: Open) -> None:
    reopen().write(FULL)
    changed = StateChanges(
        sessions={1: b"other"},
        subscriptions={(1, "a/#"): b"other"},
        retained={"a/b": b"other"},
        messages={1: b"other"},
        received={(1, 5): True},
    )
    reopen().write(changed)
    stored = reopen().load()
    assert (stored.sessions[1], stored.subscriptions[1, "a/#"], stored.retained["a/b"], stored.messages[1]) == (b"other",) * 4
    assert len(stored.messages) == len(FULL.messages)
    assert sorted(stored.received) == sorted(FULL.received)


def test_queued_deliveries_are_loaded_in_one_order_over_all_sessions(reopen: Open) -> None:
    order = [(session, delivery) for delivery in (9, 2, 40, 7) for session in (3, 1, 2)]
    for key in order:
        reopen().write(StateChanges(queued={key: Queued(1, 1, False, b"")}))
    reopen().write(StateChanges(queued=dict.fromkeys(order[2:5])))
    reopen().write(StateChanges(queued={(1, 1): Queued(1, 1, False, b"")}))
    assert list(reopen().load().queued) == [*order[:2], *order[5:], (1, 1)]


def test_a_changed_delivery_keeps_its_position_in_the_order(reopen: Open) -> None:
    reopen().write(FULL)
    reopen().write(StateChanges(queued={(3, 1): Queued(1, 1, False, b""), (1, 9): Queued(2, 2, True, b"released")}))
    stored = reopen().load().queued
    assert list(stored) == [*FULL.queued, (3, 1)]
    assert stored[1, 9] == Queued(2, 2, True, b"released")


def test_deleting_a_session_deletes_its_own_entries_and_no_others(reopen: Open) -> None:
    reopen().write(FULL)
    reopen().write(StateChanges(sessions={1: None}))
    rest = StateChanges(
        {number: details for number, details in FULL.sessions.items() if number != 1},
        {key: details for key, details in FULL.subscriptions.items() if key[0] != 1},
        FULL.retained,
        FULL.messages,
        {key: queued for key, queued in FULL.queued.items() if key[0] != 1},
        {key: is_open for key, is_open in FULL.received.items() if key[0] != 1},
    )
    assert equal(reopen().load(), rest)


def test_deleted_sessions_are_applied_before_the_other_changes_of_a_tick(reopen: Open) -> None:
    storage = reopen()
    storage.write(FULL)
    later: dict[tuple[int, int], Queued | None] = {(1, 9): Queued(1, 1, False, b"new")}
    storage.write(StateChanges({1: None}, {(1, "new"): b""}, queued=later, received={(1, 8): True}))
    storage.write(StateChanges({1: b"new"}))
    stored = reopen().load()
    assert stored.sessions[1] == b"new"
    assert [key for key in stored.subscriptions if key[0] == 1] == [(1, "new")]
    assert list(stored.queued.items()) == [((2, 7), FULL.queued[2, 7]), *later.items()]
    assert [key for key in stored.received if key[0] == 1] == [(1, 8)]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 200])
def test_any_number_of_rows_can_be_put_and_removed(reopen: Open, count: int) -> None:
    storage = reopen()
    numbers = range(0, 3 * count, 3)
    storage.write(StateChanges(messages={number: b"%d" % number for number in range(3 * count)}))
    storage.write(StateChanges(messages=dict.fromkeys(numbers)))
    assert sorted(reopen().load().messages) == sorted(set(range(3 * count)) - set(numbers))


def test_a_faulty_storage_stores_nothing_until_it_recovers(reopen: Open) -> None:
    faulty = FaultyStorage(reopen())
    faulty.write(StateChanges(sessions={1: b""}))
    faulty.fail_with("the disk is full")
    with pytest.raises(StorageUnavailable, match="the disk is full"):
        faulty.write(StateChanges(sessions={2: b""}))
    with pytest.raises(StorageUnavailable, match="the disk is full"):
        faulty.load()
    faulty.heal()
    faulty.write(StateChanges(sessions={3: b""}))
    assert list(faulty.load().sessions) == [1, 3]
    assert faulty.refused == 1
    faulty.close()


def test_storage_with_durability_none_writes_no_files(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "stored", Durability.NONE)
    assert isinstance(storage, MemoryStorage)
    storage.write(FULL)
    assert equal(storage.load(), StateChanges())
    storage.close()
    assert not (tmp_path / "stored").exists()


def test_the_directory_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    open_storage(tmp_path / "deep" / "stored", Durability.PROCESS_CRASH).close()
    assert stat.S_IMODE((tmp_path / "deep" / "stored").stat().st_mode) == 0o700


def test_durability_levels_are_named_as_in_the_configuration() -> None:
    assert [level.value for level in Durability] == ["none", "process crash", "power loss"]


def test_a_tick_with_a_value_that_cannot_be_stored_stores_nothing(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "stored", Durability.PROCESS_CRASH)
    with pytest.raises(OverflowError):
        storage.write(StateChanges({1: b""}, messages={2**63: b""}, queued={(1, 1): Queued(1, 1, False, b"")}))
    assert equal(storage.load(), StateChanges())
    storage.write(FULL)
    assert equal(storage.load(), FULL)
    storage.close()
    storage.close()
    with pytest.raises(StorageUnavailable, match="the storage was closed"):
        storage.write(FULL)
