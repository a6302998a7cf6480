"""What pipelines read from a site's log, as columns.

    topic of the log             record of `wire.records`    one row of
    reserved.publish-pipelines   Said                        MESSAGE_ROW for each
    reports                      Reports                     REPORT_ROW for each report in it
    deliveries                   Deliveries                  DELIVERY_ROW for each endpoint in it

Instants are whole microseconds since 1970 (`…_us`); whoever needs Spark's timestamps makes them by `timestamp_micros`.
"""

from typing import Final

LOG_ROW: Final = "topic string, key string, value string, offset bigint, appended_at timestamp"
"""A record as every source gives it; the value is nothing where a key was removed."""

MESSAGE_ROW: Final = """
    edge string, number bigint, qos int, id string, source string, topic string, seen_at_us bigint, valid_until_us bigint,
    latitude double, longitude double, priority string, tags array<string>, address string, fields map<string, string>,
    body binary, offset bigint, appended_at timestamp
"""
"""A message. `id` is an unsigned number in digits, `address` the JSON of where it goes to, nothing if to content."""

REPORT_ROW: Final = """
    edge string, endpoint string, seen_at_us bigint, latitude double, longitude double, heading_deg double, speed_mps double,
    verdict int, covered int, offset bigint, appended_at timestamp
"""
"""A report. `verdict` is 0 or the reason for which the edge refused it, `covered` who covers the place: 0 this edge, 1 another
one, 2 nobody."""

DELIVERY_ROW: Final = """
    edge string, source string, id string, topic string, endpoint string, state string, at_us bigint, reason int,
    offset bigint, appended_at timestamp
"""
"""What became of an area message for one endpoint: `matched`, `sent`, `acknowledged` or `dropped` for a reason."""

SAID: Final = """
    type string, `from` string, number string, qos int, message struct<
        id: string, source: string, topic: string, seen_at: string, valid_until: string, tags: array<string>, address: string,
        place: struct<latitude: double, longitude: double>, priority: string, fields: map<string, string>, body: string>,
    _corrupt string
"""
REPORTS: Final = """
    type string, edge string, endpoints array<string>, seen_at_us array<bigint>, latitudes array<double>,
    longitudes array<double>, headings_deg array<double>, speeds_mps array<double>, verdicts array<int>, covered array<int>,
    _corrupt string
"""
DELIVERIES: Final = """
    type string, edge string, source string, id string, topic string, endpoints array<string>, states array<string>,
    at_us array<bigint>, reasons array<int>, _corrupt string
"""
