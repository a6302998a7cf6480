"""Explanations of access: which rule decides what a client may do, and whether an example keeps each limit.

The decisions are those of `AdmissionControl`: the same rights, the same checks of limits. A limit is checked if the example
states what it is about.
"""

from collections.abc import Iterator
from typing import NamedTuple

from milepost.broker.admission import AdmissionRules
from milepost.model.areas import Area
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.vetting import MessageLimits, SendCase, SenderPosition
from milepost.vetting.access import AccessAction, ClientIdentity, SendRight, needed_verbs
from milepost.vetting.send_limits import LIMIT_CHECKS, UNKNOWN_POSITION, most_urgent


class AccessQuestion(NamedTuple):
    """An example of an operation of a client; None where the example leaves something open."""

    identity: ClientIdentity
    verb: AccessAction
    topic: str
    """The topic, or the filter of a subscription."""
    priority: Priority | None = None
    """None: the class of the topic."""
    valid_s: float | None = None
    place: Place | None = None
    area: Area | None = None
    position: Place | None = None
    """Where the client is, with a plausible history."""


class AccessExplanation(NamedTuple):
    """Whether it is allowed, and one line for each rule that decides and each of its limits."""

    is_allowed: bool
    lines: tuple[str, ...]


def explain(rules: AdmissionRules, limits: MessageLimits, question: AccessQuestion, now: Instant) -> AccessExplanation:
    """Explain whether a client may do what *question* describes."""
    if question.verb is AccessAction.SUBSCRIBE:
        refused = rules.access.may_subscribe(question.identity, question.topic)
        return AccessExplanation(refused is None, ("no rule denies it" if refused is None else str(refused),))
    case = _case(rules, limits, question, now)
    is_allowed, lines = True, []
    for verb in needed_verbs(question.verb):
        right = rules.access.right(question.identity, verb, question.topic)
        refused = right.refuse_identity(question.identity)
        is_allowed = is_allowed and refused is None
        lines.append(f"{verb.value}: {right.decided_by}" if refused is None else f"{verb.value}: denied, {refused}")
        if refused is None:
            for line, is_met in _limits(right, question, case):
                is_allowed = is_allowed and is_met
                lines.append(f"  {line}")
    return AccessExplanation(is_allowed, tuple(lines))


def _case(rules: AdmissionRules, limits: MessageLimits, question: AccessQuestion, now: Instant) -> SendCase:
    own_priority = rules.default_priority(question.topic)
    position = UNKNOWN_POSITION
    if question.position is not None:
        position = SenderPosition(question.position, now, limits.rights_after_s)
    valid_s = _valid_s(rules, question)
    return SendCase(
        own_priority if question.priority is None else question.priority,
        own_priority,
        FOREVER if valid_s is None else Instant(now + round(valid_s * SECOND_NS)),
        now,
        now,
        question.place,
        question.area,
        position,
        limits,
    )


def _valid_s(rules: AdmissionRules, question: AccessQuestion) -> float | None:
    kind = rules.find_kind(question.topic)
    return question.valid_s if question.valid_s is not None or kind is None else kind.valid_s


def _limits(right: SendRight, question: AccessQuestion, case: SendCase) -> Iterator[tuple[str, bool]]:
    """Yield a line for each limit of a right, and whether the example keeps it or leaves it open."""
    if right.needs_proof:
        yield "needs a proven identity: met", True
    for key, limit in _limit_texts(right, case).items():
        missing = _missing(key, question, case)
        faults = [check.maybe_fault(right, case) for check in LIMIT_CHECKS if check.key == key]
        fault = next((fault for fault in faults if fault is not None), None)
        if missing:
            yield f"{key} {limit}: not checked, give {missing}", True
        else:
            yield (f"{key} {limit}: met", True) if fault is None else (f"{key} {limit}: not met, {fault}", False)


def _limit_texts(right: SendRight, case: SendCase) -> dict[str, str]:
    """Return the limits of a right by key."""
    rule = right.rule
    found = {"priority": f"at most {most_urgent(right, case.own_priority).name.lower()}"}
    if rule.valid_s:
        found["valid_s"] = f"at most {rule.valid_s:g} s"
    if rule.radius_m:
        found["radius_m"] = f"at most {rule.radius_m:g} m"
    if rule.within_m:
        after = f", after {case.limits.rights_after_s:g} s of plausible reports" if case.limits.rights_after_s else ""
        found["within_m"] = f"at most {rule.within_m:g} m from the position of the client{after}"
    return found


def _missing(key: str, question: AccessQuestion, case: SendCase) -> str:
    """Return the options of `milepost access explain` that a limit needs; empty: none."""
    needs_area = question.verb is AccessAction.GEOCAST and question.area is None
    if key == "valid_s":
        return "--valid-for" if case.valid_until == FOREVER else ""
    if key == "radius_m":
        return "--to" if needs_area else ""
    if key == "within_m":
        names = ["--to"] if needs_area else ["--place"] if question.area is None and question.place is None else []
        return " and ".join([*names, *(["--at"] if question.position is None else [])])
    return ""


def shown_explanation(question: AccessQuestion, explanation: AccessExplanation) -> str:
    """Return an explanation as text: the verdict, then the reasons."""
    identity = question.identity
    parts = [f"user {identity.user}" if identity.user else "", f"role {identity.role}" if identity.role else ""]
    client = ", ".join(filter(None, parts)) or "an anonymous client"
    verdict = "allowed" if explanation.is_allowed else "denied"
    return "\n".join([f"{verdict}: {question.verb.value} on {question.topic} by {client}", *explanation.lines])
