from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.handlers import store as limits
from milepost.handlers.store import Store, StoreFault, StoreValues

KEYS = st.sampled_from(["a", "ab", "b", "ä"])
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 9), st.lists(st.booleans()))))


def test_a_value_is_a_copy() -> None:
    store = Store(StoreValues({}))
    store.put("a", {"x": [1]})
    value = store.get("a")
    assert isinstance(value, dict)
    value["x"].append(2)
    assert store.get("a") == {"x": [1]}
    assert store.get("b", 7) == 7


def test_changes_are_visible_to_their_call_only_until_they_are_applied() -> None:
    values = StoreValues({"a": b"1"})
    store = Store(values)
    store.put("b", 2)
    store.remove("a")
    assert (store.keys(), "a" in store, "b" in store) == (["b"], False, True)
    assert Store(values).keys() == ["a"]
    values.apply(store.changes)
    assert list(Store(values).items()) == [("b", 2)]


@given(st.dictionaries(KEYS, st.integers(0, 9)), CHANGES)
def test_a_store_behaves_like_a_dictionary(before: dict[str, int], changes: list[tuple[str, object]]) -> None:
    model: dict[str, object] = dict(before)
    values = StoreValues({key: b"%d" % value for key, value in before.items()})
    store = Store(values)
    for key, value in changes:
        if value is None:
            store.remove(key)
            model.pop(key, None)
        else:
            store.put(key, value)
            model[key] = value
        assert dict(store.items()) == model
        assert dict(store.items("a")) == {key: value for key, value in model.items() if key.startswith("a")}
    values.apply(store.changes)
    assert dict(Store(values).items()) == model
    assert values.size == sum(len(value) for value in values.values.values())


@pytest.mark.parametrize("key", ["", "x" * 513, "a\n", 3])
def test_a_bad_key_is_refused(key: str) -> None:
    with pytest.raises(StoreFault, match="key"):
        Store(StoreValues({})).put(key, 1)


def test_a_value_that_is_not_json_or_too_large_is_refused() -> None:
    store = Store(StoreValues({}))
    with pytest.raises(StoreFault, match="JSON"):
        store.put("a", {1, 2})
    with pytest.raises(StoreFault, match="bytes"):
        store.put("a", "x" * limits.VALUE_BYTES_MAX)


def test_a_full_store_refuses_keys_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYS_MAX", 2)
    store = Store(StoreValues({"a": b"1"}))
    store.put("b", 1)
    store.put("a", 2)
    with pytest.raises(StoreFault, match="keys"):
        store.put("c", 1)
    store.remove("a")
    store.put("c", 1)
    assert store.keys() == ["b", "c"]
    monkeypatch.setattr(limits, "BYTES_MAX", 10)
    with pytest.raises(StoreFault, match="full"):
        Store(StoreValues({"a": b"1"})).put("a", "x" * 10)


def test_the_changes_of_one_call_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANGES_BYTES_MAX", limits.ROW_BYTES + 11)
    store = Store(StoreValues({}))
    store.put("a", "x")
    store.put("a", "x" * 7)
    with pytest.raises(StoreFault, match="one call"):
        store.put("b", 1)
    with pytest.raises(StoreFault, match="one call"):
        store.put("a", "x" * 8)
    assert store.get("a") == "x" * 7


def test_an_abandoned_call_cannot_use_its_store() -> None:
    store = Store(StoreValues({"a": b"1"}))
    store.close()
    uses: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.put("a", 1),
        lambda: store.remove("a"),
        store.keys,
        lambda: "a" in store,
    ]
    for use in uses:
        with pytest.raises(StoreFault, match="abandoned"):
            use()
    assert store.changes == {}
