"""Kinds of event: all of Mercury's ship, each with its topic, class and validity (M21, M29)."""

import pytest

from milepost.model.endpoints import EndpointId
from milepost.model.incidents.kinds import MercuryKind
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import DEADLINE_NS, Priority
from milepost.model.topics import check_topic

MERCURY = {"Emergency", "Moving_Object", "Collision", "Object_Hazard", "Congestion", "Blocked", "Area_Query"}


def test_m21_all_kinds_of_the_paper_ship_each_with_its_own_topic() -> None:
    assert {kind.value.topic for kind in MercuryKind} == MERCURY
    assert len(MercuryKind) == len(MERCURY)


def test_m29_an_emergency_is_sent_before_every_other_kind() -> None:
    assert [kind for kind in MercuryKind if kind.value.priority is Priority.EMERGENCY] == [MercuryKind.EMERGENCY]
    assert min(MercuryKind, key=lambda kind: kind.value.priority) is MercuryKind.EMERGENCY


@pytest.mark.parametrize("kind", MercuryKind)
def test_every_kind_has_a_rule_from_which_a_message_can_be_made(kind: MercuryKind) -> None:
    rule = kind.value
    check_topic(rule.topic)
    seen_at = Instant(1_000)
    valid_until = Instant(seen_at + rule.validity_ns)
    message = Message(MessageId(1), EndpointId("a"), rule.topic, seen_at, priority=rule.priority, valid_until=valid_until)
    assert not message.is_expired(message.deadline)
    assert message.deadline == seen_at + min(DEADLINE_NS[rule.priority], rule.validity_ns)


@pytest.mark.parametrize("kind", MercuryKind)
def test_the_validity_of_every_kind_is_not_below_its_deadline(kind: MercuryKind) -> None:
    assert kind.value.validity_ns >= DEADLINE_NS[kind.value.priority]
