from milepost.dashboard.tables import SceneTable


def test_changes_are_returned_once() -> None:
    table = SceneTable(10)
    table.put("a", {"x": 1})
    table.put("b", {"x": 2})
    assert table.take_changes() == {"a": {"x": 1}, "b": {"x": 2}}
    table.put("a", {"x": 1})
    table.drop("b")
    table.drop("c")
    assert table.take_changes() == {"b": None}
    assert table.take_changes() == {}


def test_the_oldest_row_is_dropped_beyond_the_limit() -> None:
    table = SceneTable(2)
    for key in ("a", "b", "c"):
        table.put(key, {})
    assert list(table.whole()) == ["b", "c"]
    assert table.take_changes() == {"a": None, "b": {}, "c": {}}


def test_replace_removes_rows_that_are_not_in_the_new_ones() -> None:
    table = SceneTable(10)
    table.replace({"a": {}, "b": {}})
    table.take_changes()
    table.replace({"b": {}, "c": {}})
    assert table.take_changes() == {"a": None, "c": {}}
