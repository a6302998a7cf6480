"""Answers of a handler: which requests get one, on which topic, under which number. Decisions without I/O.

Invariants:
- the numbers of answers increase for each sender name, so that receivers recognize duplicates;
- a handler's answer is never answered.
"""

from enum import Enum
from typing import Final

from milepost.model.addresses import ToContent
from milepost.model.endpoints import maybe_endpoint
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, check_site_name, inbox_topic, source_of_sender
from milepost.wire.mqtt import Properties, forwarded, parse_forwarded
from milepost.wire.user_properties import message_to_properties

FAILED: Final = "the service failed"
"""The only reason that a requester receives for a failure of the handler itself."""

STATUS: Final = "status"
"""The field (over MQTT the user property) of the status."""


class AnswerStatus(Enum):
    """The status of an answer, and the last level of its topic."""

    ACCEPT = "accept"
    REJECT = "reject"


def may_be_answered(message: Message) -> bool:
    """Return whether the source is an endpoint: two services that answer each other would never stop."""
    return maybe_endpoint(message.source) is not None


def next_number(last: int, now: Instant) -> int:
    """Return the number of the next answer."""
    return max(last + 1, now)


def answer_topic_of(request: ForwardedMessage, site: str) -> str:
    """Return the log topic through which an answer reaches the edge of its request; raise ValueError if there is none."""
    check_site_name(request.sender.site)
    check_site_name(request.sender.edge)
    return inbox_topic(request.sender) if request.sender.site == site else CROSS_HUB


def answer_to(
    request: ForwardedMessage, status: AnswerStatus, body: bytes, *, sender: EdgeRef, number: int, now: Instant, is_json: bool
) -> ForwardedMessage:
    """Return the answer to a request; raise `Malformed` if the request's topic is too long for one."""
    request_properties = parse_forwarded(request.extras or b"")
    message = Message(
        MessageId(number),
        source_of_sender(sender),
        _answer_topic(request.message.topic, status, request_properties.response_topic),
        now,
        address=ToContent(),
        priority=request.message.priority,
        reliable=request.qos > 0,
        fields={STATUS: status.value},
        body=body,
    )
    properties = Properties(
        payload_format=1 if is_json else None,
        content_type="application/json" if is_json else None,
        correlation_data=request_properties.correlation_data,
        user=((STATUS, status.value), *message_to_properties(message)),
    )
    return ForwardedMessage(sender, number, message, qos=request.qos, extras=forwarded(properties))


def _answer_topic(topic: str, status: AnswerStatus, response_topic: str | None) -> str:
    """Return the request's response topic, unless it is a system topic; otherwise the default."""
    if response_topic is not None and not response_topic.startswith("$"):
        return response_topic
    return f"{topic}/{status.value}"
