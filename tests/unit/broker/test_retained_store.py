"""Retained messages: a tree of topics that equals a dict, and finds the messages that match a filter."""

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
TO_ALL = Subscription(ME, OnTopic("#"))

levels = st.sampled_from(["a", "b", "", "$x"])
topics = st.lists(levels, min_size=1, max_size=3).map("/".join).filter(bool)
filters = st.tuples(st.lists(levels | st.just("+"), max_size=3), st.booleans()).map(
    lambda parts: "/".join([*parts[0], *(["#"] if parts[1] or not any(parts[0]) else [])])
)


def store(messages_max: int = 100, bytes_max: int = 10_000) -> RetainedStore:
    return RetainedStore(messages_max, bytes_max)


@given(st.lists(st.tuples(topics, st.booleans()), max_size=25), filters)
def test_the_topic_tree_equals_a_dict(steps: list[tuple[str, bool]], topic_filter: str) -> None:
    retained, model = store(), dict[str, bytes]()
    for number, (topic, is_put) in enumerate(steps):
        if is_put:
            model[topic] = str(number).encode()
            retained.put(publication(model[topic], topic))
        else:
            assert retained.drop(topic) == (model.pop(topic, None) is not None)
    assert len(retained) == len(model)
    assert retained.size == sum(len(topic) + len(body) for topic, body in model.items())
    for topic in {topic for topic, _ in steps}:
        found = retained.find(topic)
        assert (found.body if found else None) == model.get(topic)
    expected = {topic: body for topic, body in model.items() if filter_matches(topic_filter, topic)}
    assert {one.topic: one.body for one in retained.find_on_filter(topic_filter)} == expected


@given(st.lists(topics, max_size=10))
def test_the_topic_tree_is_empty_when_all_messages_were_dropped(all_topics: list[str]) -> None:
    retained = store()
    for topic in all_topics:
        retained.put(publication(topic=topic))
    for topic in all_topics:
        retained.drop(topic)
    assert (len(retained), retained.size) == (0, 0)
    assert not retained._root.below


def test_leading_wildcards_do_not_match_topics_that_begin_with_a_dollar() -> None:
    retained = store()
    for topic in ("$SYS/a", "a/$x"):
        retained.put(publication(topic=topic))
    assert [one.topic for one in retained.find_on_filter("#")] == ["a/$x"]
    assert [one.topic for one in retained.find_on_filter("+/a")] == []
    assert [one.topic for one in retained.find_on_filter("+/+")] == ["a/$x"]
    assert [one.topic for one in retained.find_on_filter("$SYS/#")] == ["$SYS/a"]


def test_messages_and_bytes_are_limited_and_a_replacement_always_fits() -> None:
    retained = store(messages_max=2, bytes_max=20)
    retained.put(publication(b"1234", "a"))
    retained.put(publication(b"1234", "b"))
    refused = retained.refusal_for(publication(b"1", "c"))
    assert refused is not None
    assert refused.reason is Reason.RETAINED_FULL
    assert retained.refusal_for(publication(b"x" * 14, "a")) is None
    too_much = retained.refusal_for(publication(b"x" * 15, "a"))
    assert too_much is not None
    assert too_much.reason is Reason.RETAINED_FULL


def test_a_query_finds_retained_messages_by_their_tags_and_topics() -> None:
    retained = store()
    icy, dry = publication(b"icy", "road/1"), publication(b"dry", "road/2")
    icy.tags, dry.tags = tags(["ice"]), tags(["dry"])
    for one in (icy, dry):
        retained.put(one)
    assert retained.matching(Subscription(ME, parse_query("ice")), None, at(0)) == [icy]
    assert retained.matching(Subscription(ME, parse_query("!ice")), None, at(0)) == [dry]


def test_an_area_finds_retained_messages_by_their_place() -> None:
    retained = store()
    near, far, nowhere = publication(topic="near"), publication(topic="far"), publication(topic="nowhere")
    near.place, far.place = HERE, THERE
    for one in (near, far, nowhere):
        retained.put(one)
    assert retained.matching(replace(TO_ALL, area=Circle(HERE, 1000)), None, at(0)) == [near]
    around = replace(TO_ALL, area=Around(1000))
    assert retained.matching(around, THERE, at(0)) == [far]
    assert retained.matching(around, None, at(0)) == [], "the position of the owner is not known"


def test_a_time_window_finds_retained_messages_by_seen_at_and_no_expired_ones() -> None:
    retained = store()
    early, late, short = (
        publication(topic="1", seen_s=1),
        publication(topic="2", seen_s=5),
        publication(topic="3", seen_s=5, valid_s=6),
    )
    for one in (early, late, short):
        retained.put(one)
    assert retained.matching(replace(TO_ALL, time_window=TimeWindow(at(4), at(9))), None, at(6)) == [late, short]
    assert retained.matching(TO_ALL, None, at(7)) == [early, late]
