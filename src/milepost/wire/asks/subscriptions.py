"""What a SUBSCRIBE asks: its topic filter, and with our words a formula, an area and a frame."""

from typing import Final

from milepost.model.endpoints import EndpointId
from milepost.model.frames import ALWAYS
from milepost.model.instants import Instant
from milepost.model.queries import And, OnTopic, Query, normal_form, parse_query
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.topics import maybe_shared
from milepost.wire.asks.properties import UserProperties, Words, has_words
from milepost.wire.asks.texts import where_from_text
from milepost.wire.times import frame_from_text

QUERY: Final = "milepost-query"
AREA: Final = "milepost-area"
FRAME: Final = "milepost-frame"
SUBSCRIPTION_NAMES: Final = (QUERY, AREA, FRAME)

_NO_SYSTEM_TOPICS: Final = OnTopic("#")


def subscription_from(
    topic_filter: str, user: UserProperties = (), *, owner: EndpointId, qos: int, number: SubscriptionId, now: Instant
) -> Subscription:
    """The subscription of a filter, shared or not, and of the user properties beside it; the formula must hold too."""
    shared = maybe_shared(topic_filter)
    share, on_topic = (shared.group, OnTopic(shared.filter)) if shared else (None, OnTopic(topic_filter))
    if not has_words(user):
        return Subscription(owner, on_topic, id=number, qos=qos, share=share)
    words = Words(user, SUBSCRIPTION_NAMES)
    query = words.maybe(QUERY, lambda text: And((on_topic, parse_query(text))))
    frame = words.maybe(FRAME, lambda text: frame_from_text(text, now))
    return Subscription(
        owner=owner,
        query=on_topic if query is None else query,
        area=words.maybe(AREA, where_from_text),
        frame=ALWAYS if frame is None else frame,
        id=number,
        qos=qos,
        share=share,
    )


def without_system_topics(query: Query) -> Query:
    """The query; if an alternative of it names no topic, then for topics that do not begin with $."""
    names_topic = (any(isinstance(atom, OnTopic) for atom in clause.wanted) for clause in normal_form(query))
    return query if all(names_topic) else And((_NO_SYSTEM_TOPICS, query))
