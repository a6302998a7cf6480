"""Access: who may publish and subscribe where; reserved topics are closed, service topics are free (M27, D4, D5)."""

import pytest

from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import Access, ClientIdentity, Rule, Verbs
from milepost.vetting.access import RULES_MAX

ANYBODY = ClientIdentity("truck-7")
ADA = ClientIdentity("phone-1", "ada")


def allow(
    topics: str, verbs: Verbs = Verbs.BOTH, user: str | None = None, client: str | None = None, role: str | None = None
) -> Rule:
    return Rule(True, verbs, topics, user, client, role)


def deny(
    topics: str, verbs: Verbs = Verbs.BOTH, user: str | None = None, client: str | None = None, role: str | None = None
) -> Rule:
    return Rule(False, verbs, topics, user, client, role)


def reason_to_publish(access: Access, topic: str, who: ClientIdentity = ANYBODY) -> Reason | None:
    verdict = access.may_publish(who, topic)
    return None if verdict is None else verdict.reason


def reason_to_subscribe(access: Access, topic_filter: str, who: ClientIdentity = ANYBODY) -> Reason | None:
    verdict = access.may_subscribe(who, topic_filter)
    return None if verdict is None else verdict.reason


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("a/b", None),
        ("$milepost/report", None),
        ("$reserved/cross-hub", Reason.TOPIC_RESERVED),
        ("$reserved", Reason.TOPIC_RESERVED),
        ("$SYS/clients", Reason.TOPIC_RESERVED),
        ("$other", Reason.TOPIC_RESERVED),
        ("$", Reason.TOPIC_RESERVED),
    ],
)
def test_without_rules_only_the_doors_of_the_system_take_dollar_topics(topic: str, reason: Reason | None) -> None:
    assert reason_to_publish(Access(), topic) is reason


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("#", None),
        ("+/+", None),
        ("$SYS/#", None),
        ("$SYS/+/load", None),
        ("$milepost/reply", None),
        ("$other/#", None),
        ("$milepost/#", Reason.TOPIC_RESERVED),
        ("$milepost/+", Reason.TOPIC_RESERVED),
        ("$milepost/report", Reason.TOPIC_RESERVED),
        ("$reserved/+/x", Reason.TOPIC_RESERVED),
        ("$share/g/$reserved/#", Reason.TOPIC_RESERVED),
    ],
)
def test_without_rules_what_is_reserved_is_not_subscribed_to(topic_filter: str, reason: Reason | None) -> None:
    # D4
    assert reason_to_subscribe(Access(), topic_filter) is reason


def test_the_first_rule_that_is_about_the_topic_decides() -> None:
    # M27
    access = Access([allow("a/open"), deny("a/#"), allow("a/b")])
    assert reason_to_publish(access, "a/open") is None
    assert reason_to_publish(access, "a/b") is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "a") is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b") is None


def test_a_rule_is_about_its_verb_alone() -> None:
    access = Access([deny("a", Verbs.PUBLISH), deny("b", Verbs.SUBSCRIBE)])
    assert (reason_to_publish(access, "a"), reason_to_subscribe(access, "a")) == (Reason.NOT_ALLOWED, None)
    assert (reason_to_publish(access, "b"), reason_to_subscribe(access, "b")) == (None, Reason.NOT_ALLOWED)


def test_rules_of_users_come_before_the_built_in_ones() -> None:
    access = Access([allow("$reserved/#", client="hub"), deny("$milepost/publish", Verbs.PUBLISH)])
    assert reason_to_publish(access, "$reserved/x", ClientIdentity("hub")) is None
    assert reason_to_publish(access, "$reserved/x") is Reason.TOPIC_RESERVED
    assert reason_to_publish(access, "$milepost/publish") is Reason.NOT_ALLOWED


def test_a_rule_for_everything_is_not_about_dollar_topics() -> None:
    access = Access([deny("#")])
    assert reason_to_publish(access, "a") is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "$milepost/report") is None
    assert reason_to_subscribe(Access([allow("#")]), "$reserved/#") is Reason.TOPIC_RESERVED


@pytest.mark.parametrize("topic_filter", ["#", "+/x", "secret/#", "secret/+", "+/+/+", "$share/g/#"])
def test_a_subscription_that_reaches_into_what_is_denied_is_refused(topic_filter: str) -> None:
    assert reason_to_subscribe(Access([deny("secret/#")]), topic_filter) is Reason.NOT_ALLOWED


def test_the_refusal_names_the_rule_and_what_it_closes() -> None:
    verdict = Access([allow("x"), deny("secret/#", Verbs.SUBSCRIBE)]).may_subscribe(ANYBODY, "+/a/#")
    assert verdict is not None
    assert verdict.detail == "rule 2 (deny subscribe secret/#) closes 'secret/a/#' of the filter '+/a/#'"
    verdict = Access([deny("#")]).may_publish(ANYBODY, "x")
    assert verdict is not None
    assert verdict.detail == "rule 1 (deny both #) closes the topic 'x'"


def test_what_earlier_rules_allow_is_not_denied_any_more() -> None:
    access = Access([allow("a/+/open"), deny("a/+/#")])
    assert reason_to_subscribe(access, "a/b/open") is None
    assert reason_to_subscribe(access, "a/+/open") is None
    assert reason_to_subscribe(access, "a/b/+") is Reason.NOT_ALLOWED
    assert reason_to_subscribe(access, "a") is None


def test_several_earlier_rules_together_may_allow_all_that_is_denied() -> None:
    together = [allow("a"), allow("a/+"), allow("a/+/+/#")]
    assert reason_to_subscribe(Access([*together, deny("a/#")]), "#") is None
    assert reason_to_subscribe(Access([*together[1:], deny("a/#")]), "#") is Reason.NOT_ALLOWED
    assert reason_to_subscribe(Access([*together[:2], deny("a/#")]), "#") is Reason.NOT_ALLOWED


def test_rules_may_be_for_a_user_a_client_or_the_anonymous() -> None:
    access = Access([allow("a", user="ada"), allow("a", client="truck-7"), deny("a"), deny("b", user="")])
    assert reason_to_publish(access, "a", ADA) is None
    assert reason_to_publish(access, "a", ClientIdentity("truck-7", "bob")) is None
    assert reason_to_publish(access, "a", ClientIdentity("phone-2", "bob")) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b", ADA) is None
    assert reason_to_publish(access, "b", ANYBODY) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b", ClientIdentity("x", "")) is Reason.NOT_ALLOWED


def test_rules_may_be_for_a_role_or_for_those_without_a_certificate() -> None:
    access = Access(
        [allow("a", role="roadside"), deny("a"), deny("b", role=""), allow("c", user="ada", role="roadside"), deny("c")]
    )
    unit, car = ClientIdentity("unit-1", None, "roadside"), ClientIdentity("car-1", "ada", "vehicle")
    assert reason_to_publish(access, "a", unit) is None
    assert reason_to_publish(access, "a", car) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b", car) is None
    assert reason_to_publish(access, "c", unit) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "c", ClientIdentity("unit-1", "ada", "roadside")) is None
    for nobody in (ANYBODY, ClientIdentity("x", "ada", "")):
        assert reason_to_publish(access, "b", nobody) is Reason.CERTIFICATE_ROLE


def test_what_a_rule_for_a_role_denies_is_refused_for_the_role() -> None:
    access = Access([deny("a/#", role="vehicle"), deny("a/b")])
    car, unit = ClientIdentity("car-1", None, "vehicle"), ClientIdentity("unit-1", None, "roadside")
    assert reason_to_publish(access, "a/b", car) is Reason.CERTIFICATE_ROLE
    assert reason_to_subscribe(access, "+/b", car) is Reason.CERTIFICATE_ROLE
    assert reason_to_publish(access, "a/b", unit) is Reason.NOT_ALLOWED
    assert reason_to_subscribe(access, "a/c", unit) is None


def test_blanks_stand_for_client_and_user_also_inside_a_level() -> None:
    access = Access([allow("at/%c/by-%u-x/#"), deny("#")])
    assert reason_to_publish(access, "at/phone-1/by-ada-x/1", ADA) is None
    assert reason_to_publish(access, "at/phone-1/by-bob-x/1", ADA) is Reason.NOT_ALLOWED
    assert reason_to_subscribe(access, "at/phone-1/by-ada-x/#", ADA) is None
    assert reason_to_subscribe(access, "at/+/by-ada-x/#", ADA) is Reason.NOT_ALLOWED


@pytest.mark.parametrize("name", ["+", "#", "a/b", "a/#", "x+", ""])
@pytest.mark.parametrize("topic", ["at/+/x", "at/a/b/x", "at/victim/x", "at/#/x", "at//x", "at/x+/x"])
def test_a_name_with_marks_fits_no_rule(name: str, topic: str) -> None:
    for blank in ("%c", "%u"):
        access = Access([allow(f"at/{blank}/x"), allow(f"at/{blank}"), deny("#")])
        assert reason_to_publish(access, topic, ClientIdentity(name, name)) is Reason.NOT_ALLOWED
        assert reason_to_subscribe(access, "at/victim/x", ClientIdentity(name, name)) is Reason.NOT_ALLOWED


def test_a_name_opens_no_topics_of_the_system() -> None:
    access = Access([allow("%c/#"), allow("x%u/#")])
    assert reason_to_publish(access, "$reserved/x", ClientIdentity("$reserved")) is Reason.TOPIC_RESERVED
    assert reason_to_subscribe(access, "$reserved/#", ClientIdentity("$reserved")) is Reason.TOPIC_RESERVED
    assert reason_to_publish(Access([allow("a/%c"), deny("#")]), "a/$x", ClientIdentity("$x")) is None
    assert reason_to_publish(Access([allow("x%c/#"), deny("#")]), "x$y/1", ClientIdentity("$y")) is None


def test_a_client_called_like_a_blank_gains_nothing() -> None:
    access = Access([allow("at/%c"), deny("#")])
    assert reason_to_publish(access, "at/ada", ClientIdentity("%u", "ada")) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "at/%u", ClientIdentity("%u", "ada")) is None


def test_the_anonymous_have_no_topics_by_user_name() -> None:
    access = Access([allow("by/%u/#"), deny("by/#")])
    for topic in ("by/None/x", "by//x", "by/%u/x"):
        assert reason_to_publish(access, topic) is Reason.NOT_ALLOWED


@pytest.mark.parametrize(
    ("rule", "is_personal"),
    [
        (allow("a/#"), False),
        (allow("a/%d"), False),
        (allow("a/%c"), True),
        (allow("a/x%u"), True),
        (deny("a", user=""), True),
        (deny("a", client="x"), True),
        (deny("a", role="vehicle"), True),
        (deny("a", role=""), True),
    ],
)
def test_whether_verdicts_depend_on_who_asks_is_known(rule: Rule, is_personal: bool) -> None:
    assert Access([rule]).is_personal is is_personal
    assert not Access().is_personal


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("ice", Reason.NOT_ALLOWED),
        ("!ice", Reason.NOT_ALLOWED),
        ("topic:road/# & ice", None),
        ("topic:road/# | ice", Reason.NOT_ALLOWED),
        ("topic:# & !topic:secret/#", None),
        ("topic:# & !topic:secret/+", Reason.NOT_ALLOWED),
        ("topic:# & !topic:secret/+ & !topic:secret", Reason.NOT_ALLOWED),
        ("ice & !topic:secret/#", None),
        ("topic:+/x & topic:secret/#", Reason.NOT_ALLOWED),
        ("topic:road/# & topic:secret/#", None),
        ("topic:$reserved/#", Reason.TOPIC_RESERVED),
        ("topic:$SYS/# & !topic:$SYS/load", None),
    ],
)
def test_a_formula_is_judged_by_the_topics_each_alternative_asks_for(query: str, reason: Reason | None) -> None:
    verdict = Access([deny("secret/#")]).may_ask(ANYBODY, parse_query(query))
    assert (None if verdict is None else verdict.reason) is reason


def test_a_formula_asks_for_what_its_filters_have_in_common() -> None:
    access = Access([deny("a/#"), deny("+/b"), allow("x/+/z"), deny("x/y/#")])
    assert access.may_ask(ANYBODY, parse_query("topic:a/# & topic:+/b & topic:c/b")) is None
    assert access.may_ask(ANYBODY, parse_query("topic:x/# & topic:+/y/z & topic:+/+/z")) is None
    assert access.may_ask(ANYBODY, parse_query("topic:x/# & topic:+/y/z/#")) is not None


def test_a_formula_that_is_never_true_is_refused_as_such() -> None:
    verdict = Access().may_ask(ANYBODY, parse_query("a & !a"))
    assert verdict is not None
    assert verdict.reason is Reason.QUERY_NEVER_TRUE


def test_a_share_without_name_is_refused_as_such() -> None:
    assert reason_to_subscribe(Access(), "$share//a") is Reason.SHARE_NAME


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        ("a/#/b", Reason.TOPIC_WILDCARD),
        ("a/+%c", Reason.TOPIC_WILDCARD),
        ("", Reason.TOPIC_EMPTY),
        ("$share/g/a", Reason.FIELD_RANGE),
    ],
)
def test_a_rule_needs_a_filter(topics: str, reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        allow(topics)
    assert caught.value.reason is reason


def test_the_access_list_has_a_limit() -> None:
    Access([allow("a")] * RULES_MAX)
    with pytest.raises(Malformed):
        Access([allow("a")] * (RULES_MAX + 1))


def test_how_near_a_place_must_be_is_said_by_the_rule_that_decides() -> None:
    near = Rule(True, Verbs.PUBLISH, "Collision/#", within_m=500.0)
    access = Access([Rule(True, Verbs.PUBLISH, "Collision/#", user="ada"), near])
    assert access.within_m(ANYBODY, "Collision/1") == 500.0
    assert access.within_m(ADA, "Collision/1") == access.within_m(ANYBODY, "Ice") == 0.0
    assert reason_to_publish(access, "Collision/1") is None
    assert str(near) == "allow publish Collision/# within 500 m"


@pytest.mark.parametrize(
    ("allows", "verbs", "within_m"),
    [(False, Verbs.PUBLISH, 1.0), (True, Verbs.BOTH, 1.0), (True, Verbs.PUBLISH, -1.0), (True, Verbs.PUBLISH, 1e9)],
)
def test_how_near_is_a_distance_and_for_those_who_publish(allows: bool, verbs: Verbs, within_m: float) -> None:
    with pytest.raises(ValueError, match="within_m is"):
        Rule(allows, verbs, "a", within_m=within_m)
