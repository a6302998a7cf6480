"""Milepost's words over MQTT: what an MQTT client says of tags, places, areas and times, and how it is told.

MQTT 5 clients write them as user properties whose names begin with `milepost-`; any client may publish JSON to the topics below
`$milepost/`. `docs/reference/mqtt.md` is the page for users. Whatever arrives, the one error is `Malformed`.
"""

from milepost.wire.asks.messages import MessageWords, message_user_properties, words_of_message
from milepost.wire.asks.properties import ordinary_properties
from milepost.wire.asks.reports import report_from
from milepost.wire.asks.services import (
    REPLY_TOPIC,
    SERVICE_PREFIX,
    Service,
    message_from_json,
    reply_json,
    report_from_json,
    service_at,
    subscription_from_json,
    unsubscription_from_json,
)
from milepost.wire.asks.subscriptions import subscription_from

__all__ = [
    "REPLY_TOPIC",
    "SERVICE_PREFIX",
    "MessageWords",
    "Service",
    "message_from_json",
    "message_user_properties",
    "ordinary_properties",
    "reply_json",
    "report_from",
    "report_from_json",
    "service_at",
    "subscription_from",
    "subscription_from_json",
    "unsubscription_from_json",
    "words_of_message",
]
