"""Domain model: message, address, area, query, time window, subscription, report, notice, and the reasons for refusals."""

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Union, Upstream
from milepost.model.endpoints import EndpointId, SourceId, endpoint_id, source_id
from milepost.model.incidents.kinds import KindRule, MercuryKind
from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.places import Place, distance_m
from milepost.model.priorities import Priority
from milepost.model.queries import Query, parse_query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId, notice_of
from milepost.model.tags import Tag, tag, tags
from milepost.model.time_windows import ALWAYS, TimeWindow

__all__ = [
    "ALWAYS",
    "BEGINNING",
    "FOREVER",
    "SECOND_NS",
    "Address",
    "Area",
    "Around",
    "Box",
    "Circle",
    "Corridor",
    "EndpointId",
    "Instant",
    "KindRule",
    "Malformed",
    "MercuryKind",
    "Message",
    "MessageId",
    "Notice",
    "Place",
    "Polygon",
    "Priority",
    "Query",
    "Reason",
    "Refused",
    "Report",
    "Scalar",
    "SourceId",
    "Subscription",
    "SubscriptionId",
    "Tag",
    "TimeWindow",
    "ToArea",
    "ToContent",
    "ToEndpoint",
    "ToEveryone",
    "ToNotified",
    "Union",
    "Upstream",
    "distance_m",
    "endpoint_id",
    "notice_of",
    "parse_query",
    "source_id",
    "tag",
    "tags",
]
