"""The catalogue of storage: what every storage that keeps things does, the one in memory and the one on disk."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faulty_storage import FaultyStorage
from milepost.broker.effects import Changes, Kept, Queued, Storage, StorageUnavailable
from milepost.model.durability import Durability
from milepost.storage import MemoryStorage, SqliteStorage, open_storage
from storage_in_memory import KeptInMemory

LARGEST = 2**63 - 1
FULL = Changes(
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
    """Opens the storage; again, when it is open already, after closing it."""
    memory, opened = KeptInMemory(), list[Storage]()

    def make() -> Storage:
        if opened:
            opened.pop().close()
        is_memory = request.param == "in memory"
        opened.append(memory if is_memory else open_storage(tmp_path / "kept", request.param))
        return opened[-1]

    yield make
    for storage in opened:
        storage.close()


def equal(left: Kept, right: Changes) -> bool:
    """Whether all of it was kept, and the order of what was queued."""
    return (
        left.sessions == right.sessions
        and left.subscriptions == right.subscriptions
        and left.retained == right.retained
        and left.messages == right.messages
        and list(left.queued.items()) == list(right.queued.items())
        and sorted(left.received) == sorted(right.received)
    )


def test_a_new_storage_is_empty(reopen: Open) -> None:
    assert equal(reopen().load(), Changes())


def test_all_that_was_written_is_there_after_a_restart(reopen: Open) -> None:
    reopen().write(FULL)
    assert equal(reopen().load(), FULL)
    assert equal(reopen().load(), FULL)


def test_what_is_loaded_has_the_types_that_were_written(reopen: Open) -> None:
    reopen().write(FULL)
    queued = reopen().load().queued[2, 7]
    assert isinstance(queued, Queued)
    assert queued.is_released is True
    assert type(queued.details) is bytes


def test_nothing_changes_nothing(reopen: Open) -> None:
    reopen().write(FULL)
    reopen().write(Changes())
    assert equal(reopen().load(), FULL)


def test_everything_can_be_undone_one_by_one(reopen: Open) -> None:
    storage = reopen()
    storage.write(FULL)
    storage.write(
        Changes(
            subscriptions=dict.fromkeys(FULL.subscriptions),
            retained=dict.fromkeys(FULL.retained),
            messages=dict.fromkeys(FULL.messages),
            queued=dict.fromkeys(FULL.queued),
            received=dict.fromkeys(FULL.received),
        )
    )
    assert equal(storage.load(), Changes(sessions=FULL.sessions))
    reopen().write(Changes(sessions=dict.fromkeys(FULL.sessions)))
    assert equal(reopen().load(), Changes())


def test_undoing_what_was_never_there_is_no_fault(reopen: Open) -> None:
    storage = reopen()
    storage.write(
        Changes({1: None}, {(1, "a"): None}, {"a": None}, {1: None}, {(1, 1): None, (2, 2): None}, {(1, 1): None, (2, 2): None})
    )
    assert equal(storage.load(), Changes())


def test_a_later_value_replaces_the_earlier_one(reopen: Open) -> None:
    reopen().write(FULL)
    changed = Changes(
        sessions={1: b"other"},
        subscriptions={(1, "a/#"): b"other"},
        retained={"a/b": b"other"},
        messages={1: b"other"},
        received={(1, 5): True},
    )
    reopen().write(changed)
    kept = reopen().load()
    assert (kept.sessions[1], kept.subscriptions[1, "a/#"], kept.retained["a/b"], kept.messages[1]) == (b"other",) * 4
    assert len(kept.messages) == len(FULL.messages)
    assert sorted(kept.received) == sorted(FULL.received)


def test_what_is_queued_comes_back_in_the_order_of_all_sessions_together(reopen: Open) -> None:
    order = [(session, delivery) for delivery in (9, 2, 40, 7) for session in (3, 1, 2)]
    for key in order:
        reopen().write(Changes(queued={key: Queued(1, 1, False, b"")}))
    reopen().write(Changes(queued=dict.fromkeys(order[2:5])))
    reopen().write(Changes(queued={(1, 1): Queued(1, 1, False, b"")}))
    assert list(reopen().load().queued) == [*order[:2], *order[5:], (1, 1)]


def test_a_delivery_that_is_changed_keeps_its_turn(reopen: Open) -> None:
    reopen().write(FULL)
    reopen().write(Changes(queued={(3, 1): Queued(1, 1, False, b""), (1, 9): Queued(2, 2, True, b"released")}))
    kept = reopen().load().queued
    assert list(kept) == [*FULL.queued, (3, 1)]
    assert kept[1, 9] == Queued(2, 2, True, b"released")


def test_a_session_that_goes_takes_its_own_along_and_nothing_else(reopen: Open) -> None:
    reopen().write(FULL)
    reopen().write(Changes(sessions={1: None}))
    rest = Changes(
        {number: details for number, details in FULL.sessions.items() if number != 1},
        {key: details for key, details in FULL.subscriptions.items() if key[0] != 1},
        FULL.retained,
        FULL.messages,
        {key: queued for key, queued in FULL.queued.items() if key[0] != 1},
        {key: is_open for key, is_open in FULL.received.items() if key[0] != 1},
    )
    assert equal(reopen().load(), rest)


def test_a_session_goes_before_anything_else_of_the_turn_happens(reopen: Open) -> None:
    storage = reopen()
    storage.write(FULL)
    later: dict[tuple[int, int], Queued | None] = {(1, 9): Queued(1, 1, False, b"new")}
    storage.write(Changes({1: None}, {(1, "new"): b""}, queued=later, received={(1, 8): True}))
    storage.write(Changes({1: b"new"}))
    kept = reopen().load()
    assert kept.sessions[1] == b"new"
    assert [key for key in kept.subscriptions if key[0] == 1] == [(1, "new")]
    assert list(kept.queued.items()) == [((2, 7), FULL.queued[2, 7]), *later.items()]
    assert [key for key in kept.received if key[0] == 1] == [(1, 8)]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 200])
def test_any_number_of_rows_is_put_and_removed(reopen: Open, count: int) -> None:
    storage = reopen()
    numbers = range(0, 3 * count, 3)
    storage.write(Changes(messages={number: b"%d" % number for number in range(3 * count)}))
    storage.write(Changes(messages=dict.fromkeys(numbers)))
    assert sorted(reopen().load().messages) == sorted(set(range(3 * count)) - set(numbers))


def test_a_faulty_storage_keeps_nothing_until_it_is_healed(reopen: Open) -> None:
    faulty = FaultyStorage(reopen())
    faulty.write(Changes(sessions={1: b""}))
    faulty.fail_with("the disk is full")
    with pytest.raises(StorageUnavailable, match="the disk is full"):
        faulty.write(Changes(sessions={2: b""}))
    with pytest.raises(StorageUnavailable, match="the disk is full"):
        faulty.load()
    faulty.heal()
    faulty.write(Changes(sessions={3: b""}))
    assert list(faulty.load().sessions) == [1, 3]
    assert faulty.refused == 1
    faulty.close()


def test_storage_that_survives_nothing_keeps_nothing_and_touches_nothing(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "kept", Durability.NOTHING)
    assert isinstance(storage, MemoryStorage)
    storage.write(FULL)
    assert equal(storage.load(), Changes())
    storage.close()
    assert not (tmp_path / "kept").exists()


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    open_storage(tmp_path / "deep" / "kept", Durability.PROCESS_CRASH).close()
    assert stat.S_IMODE((tmp_path / "deep" / "kept").stat().st_mode) == 0o700


def test_the_levels_are_written_as_the_configuration_has_them() -> None:
    assert [level.value for level in Durability] == ["nothing", "process crash", "power loss"]


def test_a_turn_with_a_value_that_cannot_be_stored_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "kept", Durability.PROCESS_CRASH)
    with pytest.raises(OverflowError):
        storage.write(Changes({1: b""}, messages={2**63: b""}, queued={(1, 1): Queued(1, 1, False, b"")}))
    assert equal(storage.load(), Changes())
    storage.write(FULL)
    assert equal(storage.load(), FULL)
    storage.close()
    storage.close()
    with pytest.raises(StorageUnavailable, match="it was closed"):
        storage.write(FULL)
