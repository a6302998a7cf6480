"""Handling: what becomes of a message that a handler was asked to deal with (D10, D11); decisions only.

    read by `accepts` ─▶ the function ─▶ written by `answers` ─▶ accept
        │ refused           │ Reject         │ refused
        ▼                   ▼                ▼
      reject             reject           parked, and reject: the service failed
                            │ any other fault, or no end
                            └▶ again, and again, then parked

What must hold:
- a message that fails delays those behind it by a bounded time, and stops none of them;
- what a handler says is numbered ever higher for each of its voices, so that a repetition is known by its number;
- a handler's answer is never answered.
"""

from enum import Enum
from typing import Final
from zlib import crc32

from milepost.model.addresses import ToContent
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.sites import CROSS_HUB, EdgeRef, Said, check_site_name, inbox_of
from milepost.wire.asks import message_user_properties
from milepost.wire.mqtt import Properties, forwarded, parse_forwarded

WAITS_S: Final = (0.1, 1.0)
"""How long to wait before each further try; after the last one the message is parked."""

PARTS_MAX: Final = 64
HANDLER_MARK: Final = "@"
"""Handlers are named beside edges and endpoints; their names begin with this."""

FAILED: Final = "the service failed"
"""All that a requester is told of a handler's own faults."""

STATUS: Final = "status"
"""The field, and on MQTT the user property, that says which it is."""


class Verdict(Enum):
    """What an answer says, and the last level of its topic."""

    ACCEPT = "accept"
    REJECT = "reject"


def maybe_wait_s(failures: int) -> float | None:
    """How long to wait before the next try, after so many that failed; nothing: no more tries."""
    return WAITS_S[failures - 1] if failures <= len(WAITS_S) else None


def part_of(key: str, parts: int) -> int:
    """Which of so many parts deals with a source: always the same one."""
    return crc32(key.encode()) % parts


def edge_name_of(handler: str) -> str:
    """The name under which a handler asks for messages."""
    return f"{HANDLER_MARK}{handler}"


def voice_of(handler: str, part: int, *, is_far: bool) -> str:
    """The name under which a part of a handler speaks: one for edges of its site, one for the others.

    Edges read their inbox and cross-hub side by side. Numbers that rise in each of them need not rise across both.
    """
    own = edge_name_of(handler) + (f".{part}" if part else "")
    return f"{own}.far" if is_far else own


def is_own(source: str, handler: str) -> bool:
    """Whether a message was said by the handler itself."""
    own = edge_name_of(handler)
    return source == own or source.startswith(f"{own}.")


def may_be_answered(message: Message) -> bool:
    """Whether its source is an endpoint: two handlers that answer each other would never end."""
    return not message.source.startswith(HANDLER_MARK)


def next_number(last: int, now: Instant) -> int:
    """The number of what is said next."""
    return max(last + 1, now)


def way_back(said: Said, site: str) -> str:
    """The topic of the site's log through which an answer reaches the edge of its request; raises ValueError if none does."""
    check_site_name(said.sender.site)
    check_site_name(said.sender.edge)
    return inbox_of(said.sender) if said.sender.site == site else CROSS_HUB


def answer_to(said: Said, verdict: Verdict, body: bytes, *, sender: EdgeRef, number: int, now: Instant, is_json: bool) -> Said:
    """The answer to a request; raises `Malformed` if the request's topic leaves no room for one."""
    asked = parse_forwarded(said.extras or b"")
    message = Message(
        MessageId(number),
        EndpointId(sender.edge),
        _answer_topic(said.message.topic, verdict, asked.response_topic),
        now,
        address=ToContent(),
        priority=said.message.priority,
        reliable=said.qos > 0,
        fields={STATUS: verdict.value},
        body=body,
    )
    properties = Properties(
        payload_format=1 if is_json else None,
        content_type="application/json" if is_json else None,
        correlation_data=asked.correlation_data,
        user=((STATUS, verdict.value), *message_user_properties(message)),
    )
    return Said(sender, number, message, qos=said.qos, extras=forwarded(properties))


def _answer_topic(topic: str, verdict: Verdict, response_topic: str | None) -> str:
    """Where the requester asked for it; a topic of the system itself is nobody's to ask for."""
    if response_topic is not None and not response_topic.startswith("$"):
        return response_topic
    return f"{topic}/{verdict.value}"
