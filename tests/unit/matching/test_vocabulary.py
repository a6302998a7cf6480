"""The vocabulary: exactly the known tags and filters that match a message are found."""

from itertools import product

import pytest

from milepost.matching.query_index import ALWAYS_TRUE, Vocabulary
from milepost.model.queries import HasTag, OnTopic
from milepost.model.tags import Tag
from milepost.model.topics import filter_matches

LEVELS = ["a", "b", "", "$s"]
TOPICS = [topic for depth in (1, 2, 3) for levels in product([*LEVELS, "c"], repeat=depth) if (topic := "/".join(levels))]
FILTERS = [
    one
    for depth in (0, 1, 2)
    for levels in product([*LEVELS, "+"], repeat=depth)
    for last in ("a", "", "$s", "+", "#")
    if (one := "/".join([*levels, last]))
]


def found(vocabulary: Vocabulary, names: dict[int, str], topic: str, *tags: str) -> list[str]:
    return sorted(names[number] for number in vocabulary.satisfied_by(topic, frozenset(tags)))


def with_filters(*filters: str, limit: int = 1000) -> tuple[Vocabulary, dict[int, str]]:
    vocabulary = Vocabulary(limit)
    return vocabulary, {vocabulary.take(OnTopic(one)): one for one in filters}


@pytest.mark.parametrize("cell_mask", [None, 0, 1, 7])
def test_exactly_the_matching_filters_of_a_topic_are_found_even_with_shared_cells(cell_mask: int | None) -> None:
    vocabulary = Vocabulary(1000)
    if cell_mask is not None:
        vocabulary._cell_mask = cell_mask  # every prefix shares its cell with many others
    names = {vocabulary.take(OnTopic(one)): one for one in FILTERS}
    assert len(names) == len(FILTERS) > 100
    for topic in TOPICS:
        assert found(vocabulary, names, topic) == sorted(one for one in FILTERS if filter_matches(one, topic)), topic


@pytest.mark.parametrize("cell_mask", [None, 0, 1])
def test_after_half_of_the_filters_were_released_the_other_half_is_found(cell_mask: int | None) -> None:
    vocabulary = Vocabulary(1000)
    if cell_mask is not None:
        vocabulary._cell_mask = cell_mask
    names = {vocabulary.take(OnTopic(one)): one for one in FILTERS}
    for number in list(names)[::2]:
        vocabulary.release(number)
        del names[number]
    for topic in TOPICS:
        assert found(vocabulary, names, topic) == sorted(one for one in names.values() if filter_matches(one, topic)), topic


def test_a_wildcard_at_the_first_level_does_not_match_system_topics() -> None:
    vocabulary, names = with_filters("#", "+", "+/x", "+/#", "$sys/#", "$sys/+", "$sys", "$sys/x")
    assert found(vocabulary, names, "$sys/x") == ["$sys/#", "$sys/+", "$sys/x"]
    assert found(vocabulary, names, "$sys") == ["$sys", "$sys/#"]
    assert found(vocabulary, names, "sys/x") == ["#", "+/#", "+/x"]


def test_a_multi_level_wildcard_matches_its_parent_level_too() -> None:
    vocabulary, names = with_filters("city/#", "city/+/#", "#")
    assert found(vocabulary, names, "city") == ["#", "city/#"]
    assert found(vocabulary, names, "city/7") == ["#", "city/#", "city/+/#"]
    assert found(vocabulary, names, "cities") == ["#"]


@pytest.mark.parametrize("last", ["name", "+", "#"])
def test_with_more_than_255_filters_of_one_prefix_the_rest_is_found_after_any_releases(last: str) -> None:
    filters = [f"city/+/{number}/{last}" for number in range(300)]
    vocabulary, names = with_filters(*filters, "city/+/7")
    for number, name in list(names.items()):
        if name not in ("city/+/299/" + last, "city/+/7"):
            vocabulary.release(number)
            del names[number]
    wanted = "city/+/299/" + last
    assert found(vocabulary, names, "city/x/299/name") == [wanted]
    assert found(vocabulary, names, "city/x/7") == ["city/+/7"]
    assert found(vocabulary, names, "city/x/298/name") == []


@pytest.mark.parametrize("count", [254, 255, 256, 257, 512])
@pytest.mark.parametrize("last", ["name", "+", "#"])
def test_every_filter_is_found_however_many_share_a_prefix(count: int, last: str) -> None:
    filters = [f"{number}/+/x" if last == "name" else f"{last}" if number == 0 else f"{number}/{last}" for number in range(count)]
    vocabulary, names = with_filters(*filters)
    assert len(names) == count
    for topic in ("1/y/x", f"{count - 1}/y/x", "7/z", "q"):
        assert found(vocabulary, names, topic) == sorted(one for one in filters if filter_matches(one, topic))


def test_255_filters_are_released_without_a_trace_and_one_more_costs_only_futile_lookups() -> None:
    vocabulary, names = with_filters(*(f"{number}/+" for number in range(254)))
    for number in names:
        vocabulary.release(number)
    assert not any(vocabulary._cells)
    numbers = [vocabulary.take(OnTopic(f"{number}/+")) for number in range(300)]
    for number in numbers:
        vocabulary.release(number)
    assert len(vocabulary) == 0
    assert vocabulary.satisfied_by("7/x", frozenset()) == []


def test_a_name_is_released_with_its_last_use_and_its_number_reused() -> None:
    vocabulary = Vocabulary(2)
    first = vocabulary.take(HasTag(Tag("ice")))
    assert vocabulary.take(HasTag(Tag("ice"))) == first
    assert vocabulary.uses(first) == 2
    vocabulary.release(first)
    assert vocabulary.satisfied_by("x", {"ice"}) == [first]
    vocabulary.release(first)
    assert len(vocabulary) == 0
    assert vocabulary.satisfied_by("x", {"ice"}) == []
    assert vocabulary.take(OnTopic("snow/#")) == first
    assert vocabulary.satisfied_by("x", {"ice", "snow/#"}) == []
    assert vocabulary.satisfied_by("snow", set()) == [first]


def test_a_tag_and_a_filter_of_the_same_text_are_two_names() -> None:
    vocabulary = Vocabulary(10)
    as_tag, as_filter = vocabulary.take(HasTag(Tag("ice"))), vocabulary.take(OnTopic("ice"))
    assert as_tag != as_filter
    assert vocabulary.satisfied_by("ice", set()) == [as_filter]
    assert vocabulary.satisfied_by("x", {"ice"}) == [as_tag]


def test_no_name_has_the_number_that_is_always_true() -> None:
    vocabulary = Vocabulary(3)
    assert ALWAYS_TRUE not in {vocabulary.take(HasTag(Tag(text))) for text in "abc"}


def test_one_name_too_many_is_refused_and_known_ones_are_not() -> None:
    vocabulary = Vocabulary(2)
    numbers = [vocabulary.take(HasTag(Tag(text))) for text in "ab"]
    assert vocabulary.has_room_for([HasTag(Tag("a")), HasTag(Tag("b"))])
    assert not vocabulary.has_room_for([HasTag(Tag("a")), HasTag(Tag("c"))])
    assert not vocabulary.has_room_for([OnTopic("a")]), "a filter and a tag of the same text are different names"
    with pytest.raises(AssertionError):
        vocabulary.take(HasTag(Tag("c")))
    assert len(vocabulary) == 2
    assert vocabulary.take(HasTag(Tag("a"))) == numbers[0]
    assert sorted(vocabulary.satisfied_by("x", {"a", "b", "c"})) == numbers


def test_names_beyond_the_first_chunk_are_found_and_released() -> None:
    vocabulary = Vocabulary(10_000)
    numbers = [vocabulary.take(HasTag(Tag(f"t{number}"))) for number in range(9_000)]
    assert sorted(vocabulary.satisfied_by("x", {"t0", "t4095", "t4096", "t8999"})) == [1, 4096, 4097, 9000]
    for number in numbers[:8_999]:
        vocabulary.release(number)
    assert len(vocabulary) == 1
    assert vocabulary.satisfied_by("x", {"t0", "t4095", "t4096", "t8999"}) == [9000]
