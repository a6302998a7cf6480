"""Reasons for refusals: one list of reason codes, the value that reports a refusal and the exception that carries it.

Invariants:
- a released code is never changed or reused;
- every reason has advice: one sentence that says what the sender should change;
- `docs/reference/reasons.md` is generated from this file.
"""

from dataclasses import dataclass
from enum import IntEnum


class Reason(IntEnum):
    """Code and name of a refusal; `advice` says what to change."""

    # Bytes and messages
    MALFORMED = 100
    MESSAGE_TOO_LARGE = 101
    VERSION_UNKNOWN = 102
    FIELD_MISSING = 103
    FIELD_UNKNOWN = 104
    FIELD_TYPE = 105
    FIELD_RANGE = 106
    TOO_MANY_FIELDS = 107
    # Tags, topics, endpoints
    TAG_EMPTY = 110
    TAG_TOO_LONG = 111
    TAG_CHARACTER = 112
    TOO_MANY_TAGS = 113
    TOPIC_EMPTY = 120
    TOPIC_TOO_LONG = 121
    TOPIC_CHARACTER = 122
    TOPIC_WILDCARD = 123
    TOPIC_TOO_DEEP = 124
    SHARE_NAME = 125
    ENDPOINT_ID = 130
    # Queries
    QUERY_SYNTAX = 140
    QUERY_TOO_LONG = 141
    QUERY_TOO_DEEP = 142
    QUERY_TOO_COMPLEX = 143
    QUERY_NEVER_TRUE = 144
    # Places and areas
    COORDINATE_RANGE = 150
    AREA_EMPTY = 151
    AREA_RADIUS = 152
    AREA_RING = 153
    AREA_SELF_CROSSING = 154
    AREA_HOLE = 155
    AREA_TOO_LARGE = 156
    AREA_TOO_COMPLEX = 157
    AREA_UNREADABLE = 158
    # Times
    TIME_WINDOW_BACKWARDS = 160
    TIME_UNREADABLE = 161
    TIME_RANGE = 162
    VALIDITY_BACKWARDS = 163
    TIME_WINDOW_OVER = 164
    # Reports
    HEADING_RANGE = 170
    SPEED_RANGE = 171
    REPORT_NOT_OWN = 172
    REPORT_OUT_OF_ORDER = 173
    CLOCK_AHEAD = 174
    CLOCK_BEHIND = 175
    MOVE_TOO_FAST = 176
    MOVE_TELEPORT = 177
    HEADING_AGAINST_MOVE = 178
    OUTSIDE_COVERAGE = 179
    # Limits of a table
    SUBSCRIPTIONS_FULL = 180
    ENDPOINTS_FULL = 181
    NEGATED_ONLY_FULL = 182
    VOCABULARY_FULL = 183
    # Sessions
    SESSION_UNKNOWN = 190
    SESSION_OF_ANOTHER_OWNER = 191
    # MQTT packets
    PACKET_MALFORMED = 200
    PROTOCOL_ERROR = 201
    PROTOCOL_UNSUPPORTED = 202
    PACKET_TOO_LARGE = 203
    TOPIC_ALIAS = 204
    CLIENT_ID = 205
    # Admission and delivery
    NOT_ALLOWED = 220
    TOPIC_RESERVED = 221
    RATE_TOO_HIGH = 222
    PAYLOAD_NOT_JSON = 223
    PAYLOAD_SCHEMA = 224
    BAD_CREDENTIALS = 225
    CONNECTIONS_FULL = 226
    HANDSHAKES_FULL = 227
    QUEUE_FULL = 228
    RETAINED_FULL = 229
    STORAGE_UNAVAILABLE = 230
    SESSION_TAKEN_OVER = 231
    KEEP_ALIVE_TIMEOUT = 232
    SHUTTING_DOWN = 233
    EXPIRED = 234
    RECEIVER_OFFLINE = 235
    PACKET_OVER_RECEIVER_LIMIT = 236
    RECEIVE_MAXIMUM_EXCEEDED = 237
    AUTHENTICATION_METHOD = 238
    SESSION_EXPIRED = 239
    SOURCE_FORGED = 240
    AREA_NOT_COVERED = 241
    PREFIX_RATE_TOO_HIGH = 242
    EDGE_RATE_TOO_HIGH = 243
    UNACKNOWLEDGED = 244
    SPOOL_FULL = 245
    ACTIVE_ALERTS_FULL = 246
    PLACE_PASSED = 247
    REPLACED = 248
    PLACE_NOT_SEEN = 249
    # Encryption and certificates
    DECRYPTION_FAILED = 260
    REPLAYED = 261
    HANDSHAKE_STALE = 262
    COOKIE_NEEDED = 263
    CERTIFICATE_INVALID = 264
    CERTIFICATE_EXPIRED = 265
    CERTIFICATE_REVOKED = 266
    CERTIFICATE_ROLE = 267
    SIGNATURE_INVALID = 268
    # Rights of a message
    PRIORITY_TOO_HIGH = 280
    VALIDITY_TOO_LONG = 281
    AREA_OVER_LIMIT = 282
    POSITION_TOO_NEW = 283
    IDENTITY_NOT_PROVEN = 284

    @property
    def advice(self) -> str:
        """One sentence that says what the sender should change."""
        return _ADVICE[self]


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: a numbered reason and what exactly was wrong."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        what = f"{self.reason.value} {self.reason.name}"
        if not self.detail:
            return f"{what}: {self.reason.advice}"
        return f"{what}: {self.detail}{'' if self.detail.endswith('?') else '.'} {self.reason.advice}"


class Malformed(ValueError):
    """The exception that constructors, parsers and decoders raise about invalid input."""

    def __init__(self, reason: Reason, detail: str = "", *, at: int | None = None) -> None:
        super().__init__(reason, detail, at)
        self.reason = reason
        self.detail = detail
        self.at = at
        """Position of the faulty character (counted from 0), if the input is a text."""

    @property
    def refused(self) -> Refused:
        """The refusal as a value, for the broker."""
        return Refused(self.reason, self.detail)

    def __str__(self) -> str:
        return str(self.refused)


def shown(value: object) -> str:
    """Return *value* as text for a refusal's detail: at most 60 characters, also for integers too long for `repr`."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


_ADVICE: dict[Reason, str] = {
    Reason.MALFORMED: "Send one whole message in a format of docs/reference/wire.md.",
    Reason.MESSAGE_TOO_LARGE: "Keep the encoded message under the stated size, or send a link to the content.",
    Reason.VERSION_UNKNOWN: "Use a protocol version that this release supports: see docs/reference/wire.md.",
    Reason.FIELD_MISSING: "Add the named field.",
    Reason.FIELD_UNKNOWN: "Remove the named field or correct its spelling.",
    Reason.FIELD_TYPE: "Give the named field a value of the type in the schema.",
    Reason.FIELD_RANGE: "Give the named field a value inside the stated range.",
    Reason.TOO_MANY_FIELDS: "Send fewer key/value pairs, or put them into the body.",
    Reason.TAG_EMPTY: "Give the tag at least one character.",
    Reason.TAG_TOO_LONG: "Shorten the tag.",
    Reason.TAG_CHARACTER: "Write tags with letters, digits and the characters _ - . : / @.",
    Reason.TOO_MANY_TAGS: "Send fewer tags with one message.",
    Reason.TOPIC_EMPTY: "Give a topic with at least one character.",
    Reason.TOPIC_TOO_LONG: "Shorten the topic.",
    Reason.TOPIC_CHARACTER: "Remove control characters, lone surrogates and, from a topic to publish to, + and #.",
    Reason.TOPIC_WILDCARD: "Use + for a whole level, and # only as the last level.",
    Reason.TOPIC_TOO_DEEP: "Use fewer levels in the topic.",
    Reason.SHARE_NAME: "Write a shared subscription as $share/NAME/FILTER, NAME without / + #.",
    Reason.ENDPOINT_ID: "Use an id of 1 to 128 bytes of UTF-8 without control characters that does not begin with @.",
    Reason.QUERY_SYNTAX: "Write a formula such as: collision & (i80 | i15) & !cleared.",
    Reason.QUERY_TOO_LONG: "Shorten the query, or split it into several subscriptions.",
    Reason.QUERY_TOO_DEEP: "Use fewer nested parentheses and negations.",
    Reason.QUERY_TOO_COMPLEX: "Split the query into several subscriptions, one for each alternative.",
    Reason.QUERY_NEVER_TRUE: "Remove the contradiction: no message can have a tag and not have it.",
    Reason.COORDINATE_RANGE: "Give latitude in -90..90 and longitude in -180..180, in degrees.",
    Reason.AREA_EMPTY: (
        "Give at least two different points for a line, three for a ring, and a box with south below north and west unlike east."
    ),
    Reason.AREA_RADIUS: "Give a distance above 0 and below half the Earth's circumference, in metres.",
    Reason.AREA_RING: "Close each ring (first point = last point) around at least three different points.",
    Reason.AREA_SELF_CROSSING: "Draw rings that neither cross nor touch themselves.",
    Reason.AREA_HOLE: "Draw holes inside the outer ring, apart from each other.",
    Reason.AREA_TOO_LARGE: "Draw a polygon that fits into half the globe, or take the union of several.",
    Reason.AREA_TOO_COMPLEX: "Draw the area with fewer points or parts.",
    Reason.AREA_UNREADABLE: "Write the area as GeoJSON or WKT, longitude before latitude.",
    Reason.TIME_WINDOW_BACKWARDS: "Give a time window that ends after it starts.",
    Reason.TIME_UNREADABLE: "Write an ISO 8601 instant such as 2030-05-01T18:00:00Z, or a phrase such as: last 10 minutes.",
    Reason.TIME_RANGE: "Give an instant between the years 1970 and 2262.",
    Reason.VALIDITY_BACKWARDS: "Set valid_until to a time after seen_at.",
    Reason.TIME_WINDOW_OVER: "Subscribe with a time window that ends in the future.",
    Reason.HEADING_RANGE: "Give the heading in degrees clockwise from north, from 0 to less than 360.",
    Reason.SPEED_RANGE: "Give the speed in metres per second, from 0 up to the stated limit.",
    Reason.REPORT_NOT_OWN: "Report the position of the session's own endpoint only.",
    Reason.REPORT_OUT_OF_ORDER: "If this is rare, nothing needs to change: a newer report arrived first.",
    Reason.CLOCK_AHEAD: "Set the clock: the time of a report or message cannot lie in the future.",
    Reason.CLOCK_BEHIND: "Set the clock, or send reports and messages sooner after the measurement.",
    Reason.MOVE_TOO_FAST: "Check speed and position: the reported speed is above this edge's limit.",
    Reason.MOVE_TELEPORT: "Check the position: it is too far from the last one for the time between them.",
    Reason.HEADING_AGAINST_MOVE: "Check heading and position: the direction of movement does not match the heading.",
    Reason.OUTSIDE_COVERAGE: "Connect to the edge whose coverage contains the position.",
    Reason.SUBSCRIPTIONS_FULL: "Remove subscriptions that are no longer needed, or ask the operator to raise the limit.",
    Reason.ENDPOINTS_FULL: "Connect to another edge, or ask the operator to raise the limit.",
    Reason.NEGATED_ONLY_FULL: "Add a required tag to queries that consist of negations only.",
    Reason.VOCABULARY_FULL: "Use fewer different tags and topic filters, or ask the operator to raise the limit.",
    Reason.SESSION_UNKNOWN: "Start a new session with INIT.",
    Reason.SESSION_OF_ANOTHER_OWNER: (
        "Connect with the credentials or the certificate that opened the session, or use another client id."
    ),
    Reason.PACKET_MALFORMED: "Encode the packet according to sections 2 and 3 of the MQTT specification.",
    Reason.PROTOCOL_ERROR: "Send only what the MQTT specification allows in this packet, at this time.",
    Reason.PROTOCOL_UNSUPPORTED: "Connect with MQTT 3.1.1 or MQTT 5.",
    Reason.PACKET_TOO_LARGE: "Keep each packet under the maximum packet size that CONNACK states.",
    Reason.TOPIC_ALIAS: (
        "Use topic aliases from 1 up to the maximum that CONNACK states, "
        "and send the topic with an alias the first time that you use it."
    ),
    Reason.CLIENT_ID: "Give a client identifier, or connect with a clean session and have one assigned.",
    Reason.NOT_ALLOWED: "Use a topic that the access rules allow for this client, or ask the operator to allow it.",
    Reason.TOPIC_RESERVED: "Use a topic that does not begin with $: those are reserved for the system.",
    Reason.RATE_TOO_HIGH: "Send fewer messages per second, or ask the operator for a higher rate.",
    Reason.PAYLOAD_NOT_JSON: "Send one JSON document (RFC 8259, UTF-8) as the payload on this topic.",
    Reason.PAYLOAD_SCHEMA: "Send a document that is valid under the JSON Schema of this topic.",
    Reason.BAD_CREDENTIALS: "Check user name, password or certificate.",
    Reason.CONNECTIONS_FULL: "Try again later or at another edge: this edge has reached its connection limit.",
    Reason.HANDSHAKES_FULL: "Wait some seconds before connecting again: too many connections are being set up at once.",
    Reason.QUEUE_FULL: "Receive faster or subscribe to less: the queue of the receiver is full.",
    Reason.RETAINED_FULL: (
        "Clear retained messages that are not needed (publish an empty body to them), or ask the operator to raise the limit."
    ),
    Reason.STORAGE_UNAVAILABLE: "Send the message again later: the storage of the edge is unavailable.",
    Reason.SESSION_TAKEN_OVER: "Give each client its own identifier: another client has connected with the same identifier.",
    Reason.KEEP_ALIVE_TIMEOUT: "Send a packet at least once per keep-alive interval, or connect with a longer interval.",
    Reason.SHUTTING_DOWN: "Connect again in a moment, here or to another edge.",
    Reason.EXPIRED: "Give the message a longer validity, or send it sooner.",
    Reason.RECEIVER_OFFLINE: "Publish and subscribe with QoS 1 or 2 to have messages queued for an offline receiver.",
    Reason.PACKET_OVER_RECEIVER_LIMIT: "Connect the receiver with a larger maximum packet size, or send smaller messages.",
    Reason.RECEIVE_MAXIMUM_EXCEEDED: "Leave no more messages unacknowledged than the receive maximum that CONNACK states.",
    Reason.AUTHENTICATION_METHOD: "Authenticate with a method that this edge supports, and do not change it during the session.",
    Reason.SESSION_EXPIRED: "Connect with a longer session expiry interval, or reconnect sooner.",
    Reason.SOURCE_FORGED: "Use your own endpoint id as the source: the one in the certificate or in the session.",
    Reason.AREA_NOT_COVERED: (
        "Address an area that touches this edge's coverage, or send the message to the edge that covers the area."
    ),
    Reason.PREFIX_RATE_TOO_HIGH: "Wait, then send less often: the network prefix of this endpoint has reached its rate limit.",
    Reason.EDGE_RATE_TOO_HIGH: "Wait, then send less often: the edge has reached its rate limit.",
    Reason.SPOOL_FULL: "Send the message again later: the log of the site cannot be reached, and the spool of the edge is full.",
    Reason.ACTIVE_ALERTS_FULL: (
        "Publish fewer alerts, or with a shorter validity: too many alerts were active, and the least urgent one was ended."
    ),
    Reason.PLACE_PASSED: "No change is needed: the endpoint passed the place, or turned off, before the alert could be sent.",
    Reason.REPLACED: "No change is needed: a newer message about the same incident replaced it.",
    Reason.PLACE_NOT_SEEN: (
        "Report your position first, and name only places and areas near it; "
        "the operator can lift this with a rule without within_m."
    ),
    Reason.UNACKNOWLEDGED: "Acknowledge each reliable message with RECEIVED, and keep the endpoint reachable.",
    Reason.DECRYPTION_FAILED: "Encrypt with the keys of the current session; if they are lost, start a new session with INIT.",
    Reason.REPLAYED: "Give every datagram of a session a counter that was not used before.",
    Reason.HANDSHAKE_STALE: "Set the clock, then start again with a new INIT.",
    Reason.COOKIE_NEEDED: "Repeat INIT with a second MAC computed with the cookie.",
    Reason.CERTIFICATE_INVALID: "Use a certificate signed by this edge's certificate authority: milepost trust issue.",
    Reason.CERTIFICATE_EXPIRED: "Use a certificate that is valid now, and check the clock.",
    Reason.CERTIFICATE_REVOKED: "Ask the operator of the certificate authority for a new certificate.",
    Reason.CERTIFICATE_ROLE: "Use a certificate with a role that the access rules allow.",
    Reason.SIGNATURE_INVALID: "Sign with a certificate of the source itself, for at most 24 hours. Receivers treat it as forged.",
    Reason.PRIORITY_TOO_HIGH: "State a less urgent class, or ask the operator for a rule with a more urgent `priority`.",
    Reason.VALIDITY_TOO_LONG: "State a shorter validity, or ask the operator for a rule with a longer `valid_s`.",
    Reason.AREA_OVER_LIMIT: "Address a smaller area, or ask the operator for a rule with a larger `radius_m`.",
    Reason.POSITION_TOO_NEW: "Report your position for the stated time, then send the message again.",
    Reason.IDENTITY_NOT_PROVEN: (
        "Connect with a password or a certificate, or ask the operator for a rule that allows it to anonymous clients."
    ),
}
