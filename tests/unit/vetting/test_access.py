"""Access rules: reserved topics are denied, service topics are allowed, the first matching rule decides (M27, D4, D5)."""

from typing import Any

import pytest

from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import AccessAction, AccessList, AccessRule, ClientIdentity
from milepost.vetting.access import RULES_MAX, SEND_VERBS, SystemTopics

ANONYMOUS = ClientIdentity("truck-7")
ADA = ClientIdentity("phone-1", "ada")
VEHICLE = ClientIdentity("truck-7", role="vehicle")


def allow(
    topics: str,
    action: AccessAction = AccessAction.BOTH,
    user: str | None = None,
    client: str | None = None,
    role: str | None = None,
) -> AccessRule:
    return AccessRule(True, action, topics, user, client, role)


def deny(
    topics: str,
    action: AccessAction = AccessAction.BOTH,
    user: str | None = None,
    client: str | None = None,
    role: str | None = None,
) -> AccessRule:
    return AccessRule(False, action, topics, user, client, role)


def reason_to_publish(access: AccessList, topic: str, who: ClientIdentity = ANONYMOUS) -> Reason | None:
    verdict = access.may_publish(who, topic)
    return None if verdict is None else verdict.reason


def reason_to_subscribe(access: AccessList, topic_filter: str, who: ClientIdentity = ANONYMOUS) -> Reason | None:
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
def test_without_rules_only_the_services_accept_dollar_topics(topic: str, reason: Reason | None) -> None:
    assert reason_to_publish(AccessList(), topic) is reason


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("#", None),
        ("+/+", None),
        ("$SYS/#", None),
        ("$SYS/+/load", None),
        ("$milepost/reply", None),
        ("$other/#", None),
        ("$milepost/#", None),
        ("$milepost/+", None),
        ("$milepost/report", Reason.TOPIC_RESERVED),
        ("$reserved/+/x", Reason.TOPIC_RESERVED),
        ("$share/g/$reserved/#", Reason.TOPIC_RESERVED),
    ],
)
def test_without_rules_reserved_topics_cannot_be_subscribed_to(topic_filter: str, reason: Reason | None) -> None:
    # D4
    assert reason_to_subscribe(AccessList(), topic_filter) is reason


def test_the_first_rule_that_matches_the_topic_decides() -> None:
    # M27
    access = AccessList([allow("a/open"), deny("a/#"), allow("a/b")])
    assert reason_to_publish(access, "a/open") is None
    assert reason_to_publish(access, "a/b") is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "a") is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b") is None


def test_a_rule_applies_to_its_operation_only() -> None:
    access = AccessList([deny("a", AccessAction.PUBLISH), deny("b", AccessAction.SUBSCRIBE)])
    assert (reason_to_publish(access, "a"), reason_to_subscribe(access, "a")) == (Reason.NOT_ALLOWED, None)
    assert (reason_to_publish(access, "b"), reason_to_subscribe(access, "b")) == (None, Reason.NOT_ALLOWED)


def test_configured_rules_precede_the_built_in_ones() -> None:
    access = AccessList([allow("$reserved/#", client="hub"), deny("$milepost/publish", AccessAction.PUBLISH)])
    assert reason_to_publish(access, "$reserved/x", ClientIdentity("hub")) is None
    assert reason_to_publish(access, "$reserved/x") is Reason.TOPIC_RESERVED
    assert reason_to_publish(access, "$milepost/publish") is Reason.NOT_ALLOWED


def test_a_rule_for_all_topics_does_not_match_dollar_topics() -> None:
    access = AccessList([deny("#")])
    assert reason_to_publish(access, "a") is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "$milepost/report") is None
    assert reason_to_subscribe(AccessList([allow("#")]), "$reserved/#") is Reason.TOPIC_RESERVED


@pytest.mark.parametrize("topic_filter", ["#", "+/x", "+/+/+", "$share/g/#"])
def test_a_subscription_that_overlaps_a_denied_filter_is_accepted(topic_filter: str) -> None:
    assert reason_to_subscribe(AccessList([deny("secret/#")]), topic_filter) is None


@pytest.mark.parametrize("topic_filter", ["secret/#", "secret/+", "secret", "$share/g/secret/x"])
def test_a_subscription_that_can_match_nothing_allowed_is_refused(topic_filter: str) -> None:
    assert reason_to_subscribe(AccessList([deny("secret/#")]), topic_filter) is Reason.NOT_ALLOWED


def test_several_denials_together_may_refuse_a_subscription() -> None:
    access = AccessList([deny("a"), deny("a/+"), allow("a/b"), deny("a/+/+/#")])
    assert reason_to_subscribe(access, "a/#") is Reason.NOT_ALLOWED
    assert reason_to_subscribe(AccessList([deny("a"), allow("a/b"), deny("a/+"), deny("a/+/+/#")]), "a/#") is None


def test_a_message_is_read_by_the_first_rule_that_matches_its_topic() -> None:
    access = AccessList([allow("a/open"), deny("a/#", AccessAction.SUBSCRIBE), deny("b", AccessAction.PUBLISH)])
    assert access.restricts_reading
    assert access.may_read(ANONYMOUS, "a/open") is access.may_read(ANONYMOUS, "b") is access.may_read(ANONYMOUS, "c") is None
    verdict = access.may_read(ANONYMOUS, "a/x")
    assert verdict is not None
    assert (verdict.reason, verdict.detail) == (Reason.NOT_ALLOWED, "rule 2 (deny subscribe a/#) denies the topic 'a/x'")


def test_the_readers_of_a_topic_are_all_none_or_depend_on_the_client() -> None:
    access = AccessList([allow("by/%u/#"), deny("by/#"), deny("secret")])
    assert access.readers_of("x").verdict is True
    assert access.readers_of("secret").verdict is False
    readers = access.readers_of("by/ada/1")
    assert readers.verdict is None
    assert (readers.include(ADA), readers.include(ANONYMOUS)) == (True, False)


def test_reading_is_unrestricted_without_a_rule_that_denies_it() -> None:
    assert not AccessList().restricts_reading
    assert not AccessList([allow("a"), deny("b", AccessAction.PUBLISH)]).restricts_reading


def test_the_refusal_names_the_rule_and_the_filter() -> None:
    verdict = AccessList([allow("x"), deny("secret/#", AccessAction.SUBSCRIBE)]).may_subscribe(ANONYMOUS, "secret/a/#")
    assert verdict is not None
    assert verdict.detail == (
        "rule 2 (deny subscribe secret/#) denies the filter 'secret/a/#': it can match no topic that is allowed"
    )
    verdict = AccessList([deny("#")]).may_publish(ANONYMOUS, "x")
    assert verdict is not None
    assert verdict.detail == "rule 1 (deny both #) denies publish on 'x'"


def test_topics_allowed_by_an_earlier_rule_are_not_denied_by_a_later_one() -> None:
    access = AccessList([allow("a/+/open"), deny("a/+/#")])
    assert reason_to_subscribe(access, "a/b/open") is None
    assert reason_to_subscribe(access, "a/+/open") is None
    assert reason_to_subscribe(access, "a/b/+") is None
    assert reason_to_subscribe(access, "a/b/c") is Reason.NOT_ALLOWED
    assert reason_to_subscribe(access, "a") is None


def test_rules_may_apply_to_a_user_a_client_or_anonymous_clients() -> None:
    access = AccessList([allow("a", user="ada"), allow("a", client="truck-7"), deny("a"), deny("b", user="")])
    assert reason_to_publish(access, "a", ADA) is None
    assert reason_to_publish(access, "a", ClientIdentity("truck-7", "bob")) is None
    assert reason_to_publish(access, "a", ClientIdentity("phone-2", "bob")) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b", ADA) is None
    assert reason_to_publish(access, "b", ANONYMOUS) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b", ClientIdentity("x", "")) is Reason.NOT_ALLOWED


def test_rules_may_apply_to_a_role_or_to_clients_without_a_certificate() -> None:
    access = AccessList(
        [allow("a", role="roadside"), deny("a"), deny("b", role=""), allow("c", user="ada", role="roadside"), deny("c")]
    )
    unit, car = ClientIdentity("unit-1", None, "roadside"), ClientIdentity("car-1", "ada", "vehicle")
    assert reason_to_publish(access, "a", unit) is None
    assert reason_to_publish(access, "a", car) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "b", car) is None
    assert reason_to_publish(access, "c", unit) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "c", ClientIdentity("unit-1", "ada", "roadside")) is None
    for nobody in (ANONYMOUS, ClientIdentity("x", "ada", "")):
        assert reason_to_publish(access, "b", nobody) is Reason.CERTIFICATE_ROLE


def test_a_denial_by_a_role_rule_has_the_reason_certificate_role() -> None:
    access = AccessList([deny("a/#", role="vehicle"), deny("a/b")])
    car, unit = ClientIdentity("car-1", None, "vehicle"), ClientIdentity("unit-1", None, "roadside")
    assert reason_to_publish(access, "a/b", car) is Reason.CERTIFICATE_ROLE
    assert reason_to_subscribe(access, "a/+", car) is Reason.CERTIFICATE_ROLE
    assert reason_to_publish(access, "a/b", unit) is Reason.NOT_ALLOWED
    assert reason_to_subscribe(access, "a/c", unit) is None


def test_placeholders_stand_for_client_and_user_even_inside_a_level() -> None:
    access = AccessList([allow("at/%c/by-%u-x/#"), deny("#")])
    assert reason_to_publish(access, "at/phone-1/by-ada-x/1", ADA) is None
    assert reason_to_publish(access, "at/phone-1/by-bob-x/1", ADA) is Reason.NOT_ALLOWED
    assert reason_to_subscribe(access, "at/phone-1/by-ada-x/#", ADA) is None
    assert reason_to_subscribe(access, "at/+/by-bob-x/#", ADA) is Reason.NOT_ALLOWED


@pytest.mark.parametrize("name", ["+", "#", "a/b", "a/#", "x+", ""])
@pytest.mark.parametrize("topic", ["at/+/x", "at/a/b/x", "at/victim/x", "at/#/x", "at//x", "at/x+/x"])
def test_a_name_with_wildcard_characters_matches_no_placeholder_rule(name: str, topic: str) -> None:
    for placeholder in ("%c", "%u"):
        access = AccessList([allow(f"at/{placeholder}/x"), allow(f"at/{placeholder}"), deny("#")])
        assert reason_to_publish(access, topic, ClientIdentity(name, name)) is Reason.NOT_ALLOWED
        assert reason_to_subscribe(access, "at/victim/x", ClientIdentity(name, name)) is Reason.NOT_ALLOWED


def test_a_name_that_begins_with_a_dollar_opens_no_system_topics() -> None:
    access = AccessList([allow("%c/#"), allow("x%u/#")])
    assert reason_to_publish(access, "$reserved/x", ClientIdentity("$reserved")) is Reason.TOPIC_RESERVED
    assert reason_to_subscribe(access, "$reserved/#", ClientIdentity("$reserved")) is Reason.TOPIC_RESERVED
    assert reason_to_publish(AccessList([allow("a/%c"), deny("#")]), "a/$x", ClientIdentity("$x")) is None
    assert reason_to_publish(AccessList([allow("x%c/#"), deny("#")]), "x$y/1", ClientIdentity("$y")) is None


def test_a_client_named_like_a_placeholder_gains_nothing() -> None:
    access = AccessList([allow("at/%c"), deny("#")])
    assert reason_to_publish(access, "at/ada", ClientIdentity("%u", "ada")) is Reason.NOT_ALLOWED
    assert reason_to_publish(access, "at/%u", ClientIdentity("%u", "ada")) is None


def test_anonymous_clients_match_no_rule_with_a_user_placeholder() -> None:
    access = AccessList([allow("by/%u/#"), deny("by/#")])
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
def test_the_access_list_knows_whether_verdicts_depend_on_the_client(rule: AccessRule, is_personal: bool) -> None:
    assert AccessList([rule]).is_personal is is_personal
    assert not AccessList().is_personal


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("ice", None),
        ("!ice", None),
        ("topic:road/# & ice", None),
        ("topic:secret/# & ice", Reason.NOT_ALLOWED),
        ("topic:secret/# | ice", None),
        ("topic:secret/x | topic:secret/y", Reason.NOT_ALLOWED),
        ("topic:# & !topic:secret/#", None),
        ("topic:secret/# & !topic:secret/+", Reason.NOT_ALLOWED),
        ("topic:+/x & topic:secret/#", Reason.NOT_ALLOWED),
        ("topic:road/# & topic:secret/#", None),
        ("topic:$reserved/#", Reason.TOPIC_RESERVED),
        ("topic:$SYS/# & !topic:$SYS/load", None),
    ],
)
def test_a_query_is_checked_by_the_topics_of_each_alternative(query: str, reason: Reason | None) -> None:
    verdict = AccessList([deny("secret/#")]).may_query(ANONYMOUS, parse_query(query))
    assert (None if verdict is None else verdict.reason) is reason


def test_a_query_is_checked_by_the_overlap_of_its_filters() -> None:
    access = AccessList([deny("a/#"), deny("+/b"), allow("x/+/z"), deny("x/y/#")])
    assert access.may_query(ANONYMOUS, parse_query("topic:a/# & topic:+/b & topic:c/b")) is None
    assert access.may_query(ANONYMOUS, parse_query("topic:x/# & topic:+/y/z & topic:+/+/z")) is None
    assert access.may_query(ANONYMOUS, parse_query("topic:x/# & topic:+/y/z/a/#")) is not None


def test_a_query_that_is_never_true_is_refused_as_such() -> None:
    verdict = AccessList().may_query(ANONYMOUS, parse_query("a & !a"))
    assert verdict is not None
    assert verdict.reason is Reason.QUERY_NEVER_TRUE


def test_a_shared_subscription_without_a_name_is_refused_as_such() -> None:
    assert reason_to_subscribe(AccessList(), "$share//a") is Reason.SHARE_NAME


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
    AccessList([allow("a")] * RULES_MAX)
    with pytest.raises(Malformed):
        AccessList([allow("a")] * (RULES_MAX + 1))


def test_the_deciding_rule_sets_the_limits() -> None:
    near = AccessRule(True, AccessAction.PUBLISH, "Collision/#", within_m=500.0)
    access = AccessList([AccessRule(True, AccessAction.PUBLISH, "Collision/#", user="ada"), near])
    assert access.right(ANONYMOUS, AccessAction.PUBLISH, "Collision/1").rule == near
    for who, topic in ((ADA, "Collision/1"), (ANONYMOUS, "Ice")):
        rule = access.right(who, AccessAction.PUBLISH, topic).rule
        assert rule is not None
        assert rule.within_m == 0.0
    assert reason_to_publish(access, "Collision/1") is None
    assert str(near) == "allow publish Collision/# within_m 500"


@pytest.mark.parametrize(
    ("allows", "action", "within_m"),
    [
        (False, AccessAction.PUBLISH, 1.0),
        (True, AccessAction.BOTH, 1.0),
        (True, AccessAction.SUBSCRIBE, 1.0),
        (True, AccessAction.PUBLISH, -1.0),
        (True, AccessAction.PUBLISH, 1e9),
    ],
)
def test_within_m_is_a_distance_and_only_for_rules_that_allow_sending(
    allows: bool, action: AccessAction, within_m: float
) -> None:
    with pytest.raises(ValueError, match="within_m "):
        AccessRule(allows, action, "a", within_m=within_m)


@pytest.mark.parametrize("limit", [{"radius_m": 1.0}, {"priority": Priority.EMERGENCY}, {"valid_s": 1.0}])
def test_limits_are_for_rules_that_allow_sending(limit: dict[str, Any]) -> None:
    AccessRule(True, AccessAction.SEND, "a", **limit)
    with pytest.raises(ValueError, match=next(iter(limit))):
        AccessRule(False, AccessAction.SEND, "a", **limit)


@pytest.mark.parametrize(
    ("verb", "anonymous", "proven"),
    [
        (AccessAction.PUBLISH, None, None),
        (AccessAction.GEOCAST, Reason.IDENTITY_NOT_PROVEN, None),
        (AccessAction.DIRECT, None, None),
        (AccessAction.BROADCAST, Reason.NOT_ALLOWED, Reason.NOT_ALLOWED),
        (AccessAction.CANCEL, None, None),
    ],
)
def test_every_verb_has_a_default(verb: AccessAction, anonymous: Reason | None, proven: Reason | None) -> None:
    right = AccessList().right(ANONYMOUS, verb, "a")
    assert right == AccessList().right(ADA, verb, "a"), "shared between clients"
    for who, expected in ((ANONYMOUS, anonymous), (ADA, proven)):
        refused = right.refuse_identity(who)
        assert (refused and refused.reason) is expected
    assert right.decided_by.startswith(f"the default for {verb.value} (")


def test_a_rule_decides_only_its_verbs() -> None:
    access = AccessList([deny("a", AccessAction.GEOCAST), AccessRule(True, AccessAction.SEND, "a", priority=Priority.EMERGENCY)])
    decided = [access.right(ANONYMOUS, verb, "a").decided_by.split(" (")[0] for verb in SEND_VERBS]
    assert decided == ["rule 2", "rule 1", "rule 2", "rule 2", "rule 2"]
    assert reason_to_subscribe(AccessList([deny("a", AccessAction.SEND)]), "a") is None


def test_the_default_of_geocasts_is_limited() -> None:
    rule = AccessList(geocast_m=700.0).right(ADA, AccessAction.GEOCAST, "a").rule
    assert rule is not None
    assert (rule.within_m, rule.priority, rule.valid_s) == (700.0, Priority.TRAFFIC, 3_600.0)


def test_alert_topics_are_closed_and_emergencies_need_proof_until_a_rule_opens_them() -> None:
    topics = SystemTopics(closed=("Alert/#",), proven=("Emergency",))
    access = AccessList((), topics)
    for who in (ANONYMOUS, ADA, VEHICLE):
        assert reason_to_publish(access, "Alert", who) is Reason.NOT_ALLOWED
        assert reason_to_publish(access, "Alert/Collision", who) is Reason.NOT_ALLOWED
        assert reason_to_subscribe(access, "Alert/#", who) is None
    assert reason_to_publish(access, "Emergency") is Reason.IDENTITY_NOT_PROVEN
    assert reason_to_publish(access, "Emergency", ADA) is None
    assert not access.is_personal
    opened = AccessList([allow("Alert/#", AccessAction.SEND, user="ada"), allow("Emergency", user="")], topics)
    assert reason_to_publish(opened, "Alert/Collision", ADA) is None
    assert reason_to_publish(opened, "Alert/Collision") is Reason.NOT_ALLOWED
    assert reason_to_publish(opened, "Emergency") is None


def test_a_handler_answers_on_no_alert_topic_for_a_client_that_may_not_publish_there() -> None:
    topics = SystemTopics(("Alert/#",), ("Emergency",))
    allowed = AccessRule(True, AccessAction.PUBLISH, "Alert/#", user="ada")
    access = AccessList([allowed, AccessRule(False, AccessAction.SUBSCRIBE, "secret/#")], topics)
    ada, anonymous = ClientIdentity("a", "ada"), ClientIdentity("b")
    for topic in ("Alert", "Alert/Collision", "Emergency", "secret/x"):
        assert access.may_be_answered(anonymous, topic) is not None
    for topic in ("Alert", "Emergency", "reply/a"):
        assert access.may_be_answered(ada, topic) is None
    assert access.may_be_answered(anonymous, "reply/b") is None


@pytest.mark.parametrize(
    ("topics", "is_open"), [("#", False), ("+/#", False), ("%u/#", False), ("Alert/#", True), ("Alert/+", True)]
)
def test_a_rule_opens_alert_topics_only_by_name(topics: str, is_open: bool) -> None:
    access = AccessList([AccessRule(True, AccessAction.SEND, topics)], SystemTopics(("Alert/#",)))
    assert (access.may_publish(ClientIdentity("c", "Alert"), "Alert/Ice") is None) is is_open
    assert access.may_publish(ClientIdentity("c", "Alert"), "chat") is None
