"""Topics and topic filters, as MQTT has them: levels between slashes, `+` for one level, a last `#` for all that follow."""

from dataclasses import dataclass
from typing import Final

from milepost.model.reasons import Malformed, Reason
from milepost.model.texts import maybe_bad_character

TOPIC_BYTES_MAX: Final = 1024
TOPIC_LEVELS_MAX: Final = 32

SHARE_PREFIX: Final = "$share/"


@dataclass(frozen=True, slots=True)
class SharedFilter:
    """A filter whose takers form a group: each message goes to one of them."""

    group: str
    filter: str


def check_topic(topic: str) -> None:
    """Refuse a topic that cannot be published to."""
    _check_text(topic)
    for mark in "+#":
        if mark in topic:  # [MQTT-3.3.2-2]
            raise Malformed(Reason.TOPIC_CHARACTER, f"{mark!r} in the topic {_short(topic)}", at=topic.index(mark))


def check_filter(topic_filter: str) -> None:
    """Refuse a topic filter whose wildcards are not whole levels, or whose # is not the last one."""
    _check_text(topic_filter)
    if "+" not in topic_filter and "#" not in topic_filter:
        return
    levels = topic_filter.split("/")
    at = 0
    for number, level in enumerate(levels):
        is_mixed = len(level) > 1 and ("+" in level or "#" in level)  # [MQTT-4.7.1-1], [MQTT-4.7.1-2]
        if is_mixed or (level == "#" and number < len(levels) - 1):
            raise Malformed(Reason.TOPIC_WILDCARD, f"level {number + 1} of {_short(topic_filter)} is {level!r}", at=at)
        at += len(level) + 1


def maybe_shared(topic_filter: str) -> SharedFilter | None:
    """The group and the filter of `$share/group/filter`; nothing for an ordinary filter."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None
    group, slash, inner = topic_filter.removeprefix(SHARE_PREFIX).partition("/")
    if not group or not slash or "+" in group or "#" in group:  # [MQTT-4.8.2-1], [MQTT-4.8.2-2]
        raise Malformed(Reason.SHARE_NAME, f"in {_short(topic_filter)}", at=len(SHARE_PREFIX))
    try:
        check_filter(inner)
    except Malformed as fault:
        at = None if fault.at is None else fault.at + len(topic_filter) - len(inner)
        raise Malformed(fault.reason, fault.detail, at=at) from None
    return SharedFilter(group, inner)


def filter_matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic passes a filter: the definition that the index is held to."""
    if topic.startswith("$") and topic_filter[0] in "+#":  # [MQTT-4.7.2-1]
        return False
    wanted, found = topic_filter.split("/"), topic.split("/")
    for number, level in enumerate(wanted):
        if level == "#":  # also the parent level itself
            return True
        if number >= len(found) or level not in ("+", found[number]):
            return False
    return len(wanted) == len(found)


def _check_text(text: str) -> None:
    if not isinstance(text, str) or not text:  # [MQTT-4.7.3-1]
        raise Malformed(Reason.TOPIC_EMPTY)
    if (at := maybe_bad_character(text)) is not None:  # [MQTT-1.5.4-1], [MQTT-1.5.4-2] and the controls it advises against
        raise Malformed(Reason.TOPIC_CHARACTER, f"{text[at]!r} at {at}", at=at)
    if (size := len(text.encode())) > TOPIC_BYTES_MAX:
        raise Malformed(Reason.TOPIC_TOO_LONG, f"{_short(text)} has {size} bytes, {TOPIC_BYTES_MAX} are allowed")
    levels = text.count("/") + 1
    if levels > TOPIC_LEVELS_MAX:
        raise Malformed(Reason.TOPIC_TOO_DEEP, f"{levels} levels, {TOPIC_LEVELS_MAX} are allowed")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
