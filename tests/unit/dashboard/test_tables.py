from milepost.dashboard.tables import Table


def test_changes_are_told_once() -> None:
    table = Table(10)
    table.put("a", {"x": 1})
    table.put("b", {"x": 2})
    assert table.take_changes() == {"a": {"x": 1}, "b": {"x": 2}}
    table.put("a", {"x": 1})
    table.drop("b")
    table.drop("c")
    assert table.take_changes() == {"b": None}
    assert table.take_changes() == {}


def test_the_oldest_row_goes_when_there_are_too_many() -> None:
    table = Table(2)
    for key in ("a", "b", "c"):
        table.put(key, {})
    assert list(table.whole()) == ["b", "c"]
    assert table.take_changes() == {"a": None, "b": {}, "c": {}}


def test_rows_that_are_not_among_the_new_ones_go() -> None:
    table = Table(10)
    table.replace({"a": {}, "b": {}})
    table.take_changes()
    table.replace({"b": {}, "c": {}})
    assert table.take_changes() == {"a": None, "c": {}}
