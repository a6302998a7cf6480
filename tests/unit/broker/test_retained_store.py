"""Retained messages: a tree of topics that holds what a plain dict would, and gives what a filter asks for."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from milepost.broker.retained_store import RetainedStore
from milepost.model import Around, Circle, EndpointId, Place, Reason, Subscription, TimeWindow, parse_query, tags
from milepost.model.queries import OnTopic
from milepost.model.topics import filter_matches
from publications import at, publication

HERE, THERE = Place(40.0, -111.0), Place(41.0, -111.0)
ME = EndpointId("me")
OF_ALL = Subscription(ME, OnTopic("#"))

levels = st.sampled_from(["a", "b", "", "$x"])
topics = st.lists(levels, min_size=1, max_size=3).map("/".join).filter(bool)
filters = st.tuples(st.lists(levels | st.just("+"), max_size=3), st.booleans()).map(
    lambda parts: "/".join([*parts[0], *(["#"] if parts[1] or not any(parts[0]) else [])])
)


def room(messages_max: int = 100, bytes_max: int = 10_000) -> RetainedStore:
    return RetainedStore(messages_max, bytes_max)


@given(st.lists(st.tuples(topics, st.booleans()), max_size=25), filters)
def test_the_tree_gives_what_a_dict_would(steps: list[tuple[str, bool]], topic_filter: str) -> None:
    retained, model = room(), dict[str, bytes]()
    for number, (topic, is_put) in enumerate(steps):
        if is_put:
            model[topic] = str(number).encode()
            retained.put(publication(model[topic], topic))
        else:
            assert retained.drop(topic) == (model.pop(topic, None) is not None)
    assert len(retained) == len(model)
    assert retained.size == sum(len(topic) + len(body) for topic, body in model.items())
    for topic in {topic for topic, _ in steps}:
        found = retained.maybe(topic)
        assert (found.body if found else None) == model.get(topic)
    wanted = {topic: body for topic, body in model.items() if filter_matches(topic_filter, topic)}
    assert {one.topic: one.body for one in retained.on(topic_filter)} == wanted


@given(st.lists(topics, max_size=10))
def test_nothing_is_left_of_the_tree_when_everything_was_dropped(those: list[str]) -> None:
    retained = room()
    for topic in those:
        retained.put(publication(topic=topic))
    for topic in those:
        retained.drop(topic)
    assert (len(retained), retained.size) == (0, 0)
    assert not retained._root.below


def test_wildcards_in_front_find_no_topic_that_begins_with_a_dollar() -> None:
    retained = room()
    for topic in ("$SYS/a", "a/$x"):
        retained.put(publication(topic=topic))
    assert [one.topic for one in retained.on("#")] == ["a/$x"]
    assert [one.topic for one in retained.on("+/a")] == []
    assert [one.topic for one in retained.on("+/+")] == ["a/$x"]
    assert [one.topic for one in retained.on("$SYS/#")] == ["$SYS/a"]


def test_there_is_room_for_so_many_messages_and_bytes_and_always_for_one_in_place_of_another() -> None:
    retained = room(messages_max=2, bytes_max=20)
    retained.put(publication(b"1234", "a"))
    retained.put(publication(b"1234", "b"))
    refused = retained.why_not(publication(b"1", "c"))
    assert refused is not None
    assert refused.reason is Reason.RETAINED_FULL
    assert retained.why_not(publication(b"x" * 14, "a")) is None
    too_much = retained.why_not(publication(b"x" * 15, "a"))
    assert too_much is not None
    assert too_much.reason is Reason.RETAINED_FULL


def test_a_formula_finds_retained_messages_by_their_tags_and_topics() -> None:
    retained = room()
    icy, dry = publication(b"icy", "road/1"), publication(b"dry", "road/2")
    icy.tags, dry.tags = tags(["ice"]), tags(["dry"])
    for one in (icy, dry):
        retained.put(one)
    assert retained.wanted_by(Subscription(ME, parse_query("ice")), None, at(0)) == [icy]
    assert retained.wanted_by(Subscription(ME, parse_query("!ice")), None, at(0)) == [dry]


def test_an_area_finds_retained_messages_by_their_place() -> None:
    retained = room()
    near, far, nowhere = publication(topic="near"), publication(topic="far"), publication(topic="nowhere")
    near.place, far.place = HERE, THERE
    for one in (near, far, nowhere):
        retained.put(one)
    assert retained.wanted_by(replace(OF_ALL, area=Circle(HERE, 1000)), None, at(0)) == [near]
    around = replace(OF_ALL, area=Around(1000))
    assert retained.wanted_by(around, THERE, at(0)) == [far]
    assert retained.wanted_by(around, None, at(0)) == [], "nobody knows where the owner is"


def test_a_time_window_finds_retained_messages_by_when_they_were_seen_and_what_expired_is_not_found() -> None:
    retained = room()
    early, late, short = (
        publication(topic="1", seen_s=1),
        publication(topic="2", seen_s=5),
        publication(topic="3", seen_s=5, valid_s=6),
    )
    for one in (early, late, short):
        retained.put(one)
    assert retained.wanted_by(replace(OF_ALL, time_window=TimeWindow(at(4), at(9))), None, at(6)) == [late, short]
    assert retained.wanted_by(OF_ALL, None, at(7)) == [early, late]
