"""Filters as sets of topics, and the access list, against enumeration of every topic over a small alphabet.

The alphabet has a name that no filter uses and topics are two levels deeper than filters, so that what holds for all of these
topics holds for all topics.
"""

from itertools import product

from hypothesis import event, given
from hypothesis import strategies as st

from milepost.model.queries import And, HasTag, Not, OnTopic, Or, Query, holds
from milepost.model.reasons import Reason
from milepost.model.tags import Tag
from milepost.model.topics import are_covering, covers, filter_matches, levels_of, maybe_overlap, text_of
from milepost.vetting import AccessAction, AccessList, AccessRule, ClientIdentity

NAMES = ["a", "$s", ""]
DEPTH = 3
TOPICS = ["/".join(levels) for depth in range(1, DEPTH + 3) for levels in product([*NAMES, "unnamed"], repeat=depth)]
IDENTITY = ClientIdentity("a", "a", "a")


def _prefix_closed(parts: tuple[list[str], bool]) -> str:
    levels, is_open = parts
    return "/".join([*levels, "#"] if is_open else levels) or "+"


filters = st.tuples(st.lists(st.sampled_from([*NAMES, "+", "+"]), max_size=DEPTH), st.booleans()).map(_prefix_closed)
built_in = st.sampled_from(["$SYS/#", "$reserved/#", "$reserved", "$milepost/+"])
rules = st.builds(
    AccessRule,
    st.booleans(),
    st.sampled_from(AccessAction),
    filters | built_in | st.sampled_from(["%c/#", "+/%u", "+/%c"]),
    st.none() | st.sampled_from(["a", ""]),
    st.none() | st.sampled_from(["a", "b"]),
    st.none() | st.sampled_from(["a", ""]),
)
names = st.sampled_from(["a", "$s", "", "+", "a/a", "#"])
whos = st.builds(ClientIdentity, names, st.none() | names, st.sampled_from([None, "", "a", "b"]))


def passing(topic_filter: str) -> set[str]:
    return {topic for topic in TOPICS if filter_matches(topic_filter, topic)} if topic_filter else {""}


def applies_to(rule: AccessRule, who: ClientIdentity, topic: str) -> bool:
    """Return whether a rule applies to the client and the topic, in the simplest form."""
    filled = rule.topics
    for blank, name in (("%c", who.client_id), ("%u", who.user)):
        if blank in filled:
            if not name or set(name) & set("/+#") or (filled.startswith(blank) and name.startswith("$")):
                return False
            filled = filled.replace(blank, name)
    is_for = rule.user in (None, who.user or "") and rule.client in (None, who.client_id) and rule.role in (None, who.role or "")
    return is_for and filter_matches(filled, topic)


def is_allowed(chain: list[AccessRule], who: ClientIdentity, verb: AccessAction, topic: str) -> bool:
    for rule in chain:
        if verb in rule.action.verbs and applies_to(rule, who, topic):
            return rule.allow
    if filter_matches("$reserved/#", topic):
        return False
    if verb is AccessAction.PUBLISH:
        return not topic.startswith("$") or filter_matches("$milepost/#", topic)
    return topic == "$milepost/reply" or not filter_matches("$milepost/#", topic)


@given(filters, filters)
def test_one_filter_covers_another_exactly_if_it_has_all_its_topics(outer: str, inner: str) -> None:
    expected = passing(inner) <= passing(outer)
    event(f"holds: {expected}")
    assert covers(levels_of(outer), levels_of(inner)) is expected


@given(filters, filters)
def test_the_overlap_of_two_filters_has_exactly_the_common_topics(one: str, other: str) -> None:
    found = maybe_overlap(levels_of(one), levels_of(other))
    event("nothing in common" if found is None else "something in common")
    assert (set() if found is None else passing(text_of(found))) == passing(one) & passing(other)


@given(st.lists(filters, max_size=5), filters)
def test_several_filters_cover_one_exactly_if_they_have_all_its_topics(outers: list[str], inner: str) -> None:
    expected = passing(inner) <= set().union(*map(passing, outers))
    event(f"hold: {expected}")
    assert are_covering([levels_of(outer) for outer in outers], levels_of(inner)) is expected


@given(st.sampled_from(["", "$s/", "a/", "a/+/"]), st.data())
def test_filters_by_depth_cover_one_exactly_if_no_depth_is_missing(stem: str, data: st.DataObject) -> None:
    depths = ["+", "+/+", "+/+/#", "+/#"] + ([] if stem in ("", "a/+/") else ["+/+/+"])
    outers = [(stem + more).removesuffix("/") for more in data.draw(st.lists(st.sampled_from([*depths, ""]), min_size=1))]
    outers = [outer for outer in outers if outer]
    expected = passing(stem + "#") <= set().union(*map(passing, outers))
    event(f"hold: {expected}, {len(set(outers))} filters")
    assert are_covering([levels_of(outer) for outer in outers], levels_of(stem + "#")) is expected


@given(st.lists(rules, max_size=6), whos, st.sampled_from(TOPICS) | st.sampled_from(["$reserved/x", "$SYS/x", "$milepost/x"]))
def test_publishing_is_decided_by_the_first_rule(chain: list[AccessRule], who: ClientIdentity, topic: str) -> None:
    expected = is_allowed(chain, who, AccessAction.PUBLISH, topic)
    event(f"allowed: {expected}")
    assert (AccessList(chain).may_publish(who, topic) is None) is expected


READABLE = [*TOPICS, "$reserved", "$reserved/a", "$milepost/reply", "$milepost/x", "$SYS/x"]


@given(st.lists(rules, max_size=6), whos, st.sampled_from(READABLE))
def test_reading_is_decided_by_the_first_rule(chain: list[AccessRule], who: ClientIdentity, topic: str) -> None:
    expected = is_allowed(chain, who, AccessAction.SUBSCRIBE, topic)
    event(f"allowed: {expected}")
    access = AccessList(chain)
    assert (access.may_read(who, topic) is None) is expected
    readers = access.readers_of(topic)
    assert readers.include(who) is expected
    assert readers.verdict in (expected, None)
    assert access.is_personal or readers.verdict is expected


@given(st.lists(rules, max_size=6), whos, st.sampled_from(READABLE))
def test_without_a_rule_that_denies_reading_all_topics_but_system_topics_are_read(
    chain: list[AccessRule], who: ClientIdentity, topic: str
) -> None:
    access = AccessList(chain)
    event(f"restricts: {access.restricts_reading}")
    if not access.restricts_reading and not topic.startswith("$"):
        assert access.may_read(who, topic) is None


@given(st.lists(rules, max_size=6), whos, filters | built_in, st.sampled_from(["", "$share/g/"]))
def test_a_subscription_is_allowed_exactly_if_one_of_its_topics_is(
    chain: list[AccessRule], who: ClientIdentity, requested: str, share: str
) -> None:
    topics = [topic for topic in READABLE if filter_matches(requested, topic)]
    expected = any(is_allowed(chain, who, AccessAction.SUBSCRIBE, topic) for topic in topics) or not topics
    event(f"allowed: {expected}")
    assert (AccessList(chain).may_subscribe(who, share + requested) is None) is expected


@given(st.lists(rules, max_size=4), st.data())
def test_a_query_is_refused_exactly_if_no_topic_that_can_make_it_true_is_allowed(
    chain: list[AccessRule], data: st.DataObject
) -> None:
    atoms: st.SearchStrategy[Query] = filters.map(OnTopic) | st.just(HasTag(Tag("t")))
    parts = st.lists(atoms | atoms.map(Not), min_size=2, max_size=3).map(tuple)
    query = data.draw(atoms | parts.map(And) | parts.map(Or))
    verdict = AccessList(chain).may_query(IDENTITY, query)
    topics = [topic for topic in TOPICS if any(holds(query, topic, tags) for tags in (set(), {"t"}))]
    allowed = [topic for topic in topics if is_allowed(chain, IDENTITY, AccessAction.SUBSCRIBE, topic)]
    event(f"allowed: {verdict is None}, {'some' if topics else 'no'} topics")
    if verdict is not None:  # a clause without a topic requests no system topics
        assert not [topic for topic in allowed if topic[:1] != "$"] or verdict.reason is Reason.QUERY_NEVER_TRUE
    elif any(topic[:1] != "$" for topic in topics):
        assert allowed


@given(st.lists(rules, max_size=3), filters)
def test_a_query_of_one_filter_gets_the_verdict_of_the_filter(chain: list[AccessRule], requested: str) -> None:
    access = AccessList(chain)
    assert access.may_query(IDENTITY, OnTopic(requested)) == access.may_subscribe(IDENTITY, requested)


@given(rules, st.lists(whos, min_size=2, max_size=2), filters)
def test_verdicts_of_impersonal_rules_are_the_same_for_all_clients(
    rule: AccessRule, both: list[ClientIdentity], requested: str
) -> None:
    access = AccessList([rule])
    if not access.is_personal:
        assert access.may_subscribe(both[0], requested) == access.may_subscribe(both[1], requested)


@given(st.text(max_size=8))
def test_any_text_gets_a_verdict(text: str) -> None:
    access = AccessList([AccessRule(False, AccessAction.BOTH, "a/%u/#")])
    for verdict in (access.may_publish(ClientIdentity(text, text), text), access.may_subscribe(ClientIdentity(text, text), text)):
        assert verdict is None or verdict.reason in (Reason.NOT_ALLOWED, Reason.TOPIC_RESERVED, Reason.SHARE_NAME)
