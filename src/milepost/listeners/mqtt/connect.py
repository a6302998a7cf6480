"""The MQTT handshake: from CONNECT to CONNACK with success or a reason code."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import urandom
from typing import Final

from milepost.broker.broker import ConnectResult
from milepost.broker.session import SessionWill
from milepost.listeners.mqtt.connection import ENCODING_OWN, ENCODING_V3, ENCODING_V5, MqttConnection, MqttConnectionState
from milepost.listeners.mqtt.context import AwaitingSession, MqttContext
from milepost.listeners.mqtt.publish import publication_from
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.vetting.access import ClientIdentity
from milepost.vetting.ownership import refuse_client_id
from milepost.wire.mqtt import (
    Code,
    Connack,
    Connect,
    PacketType,
    Properties,
    Version,
    code_of,
    encode,
    frame_at,
    maybe_version,
    nearest_legal,
)
from milepost.wire.user_properties import parse_message_properties, report_from_properties

EXPIRES_NEVER_S: Final = 0xFFFFFFFF
_RECEIVE_MAX: Final = 65_535
_GROWTH_BYTES_MAX: Final = 8_192
"""Maximum bytes the edge adds to a packet that it forwards: subscription identifiers, an expiry."""
_KEEP_ALIVE_GRACE: Final = 1.5

BeginCheck = Callable[[str, bytes], None]
"""Starts the check of a user's password; `admit` or `deny` is called with the outcome."""


def on_connect(
    context: MqttContext, connection: MqttConnection, packet: Connect, check_password: BeginCheck, now: Instant
) -> None:
    """Check a CONNECT, then admit the client, deny it, or start the check of its password."""
    connection.version = packet.version
    properties = packet.properties
    connection.wants_reason_strings = properties.request_problem_information is not False
    connection.wants_message_ids = bool(properties.request_response_information)
    connection.packet_max = properties.maximum_packet_size or 0
    if properties.authentication_method is not None:  # [MQTT-4.12.0-1]
        deny(context, connection, Refused(Reason.AUTHENTICATION_METHOD, properties.authentication_method[:40]))
        return
    if not packet.client_id and packet.version is Version.V3 and not packet.clean_start:  # 3.1.1 [MQTT-3.1.3-8]
        deny(context, connection, Refused(Reason.CLIENT_ID, "an empty client id needs a clean session"))
        return
    user = connection.stream.maybe_certificate_user()
    rules = context.broker.rules
    if isinstance(user, Refused):
        deny(context, connection, user)
    elif user is not None or not rules.needs_password:
        admit(context, connection, packet, user, now)  # a user name that nobody checks proves nothing
    elif packet.username is None and rules.allows_anonymous:
        admit(context, connection, packet, None, now)
    elif packet.username is None:
        deny(context, connection, Refused(Reason.BAD_CREDENTIALS, "CONNECT has no user name"))
    else:
        connection.state = MqttConnectionState.CHECKING
        check_password(packet.username, packet.password or b"")


def deny(context: MqttContext, connection: MqttConnection, refused: Refused) -> None:
    """Answer CONNECT with an error code and close the connection. [MQTT-3.2.2-7]"""
    context.broker.refuse(refused)
    code = nearest_legal(code_of(refused.reason), PacketType.CONNACK)
    packet = encode(Connack(False, code, context.reason_properties(connection, refused, is_always=True)), connection.version)
    if not connection.packet_max or len(packet) <= connection.packet_max:
        context.sender.put(connection, packet)
    connection.state = MqttConnectionState.CLOSING
    context.closing.append(connection)
    context.log.info_limited("connection refused", address=connection.address, reason=refused.reason.name, detail=refused.detail)


def admit(context: MqttContext, connection: MqttConnection, packet: Connect, user: str | None, now: Instant) -> None:
    """Open the session of an authenticated client. [MQTT-3.1.4-2] to [MQTT-3.1.4-5]"""
    refused = refuse_client_id(packet.client_id, user, context.broker.rules.client_ids) if packet.client_id else None
    if refused is not None:
        deny(context, connection, refused)
        return
    try:
        name = endpoint_id(packet.client_id or f"auto-{urandom(8).hex()}")  # [MQTT-3.1.3-6], [MQTT-3.1.3-7]
        connection.identity = ClientIdentity(name, user)
        connection.state = MqttConnectionState.OPEN
        will = _will(context, packet, name, now)
        report = report_from_properties(packet.properties.user, sender=name, now=now)
    except Malformed as fault:
        reason = Reason.CLIENT_ID if fault.reason is Reason.ENDPOINT_ID else fault.reason
        deny(context, connection, Refused(reason, fault.detail))
        return
    connect = partial(_open_session, context, connection, packet, user, name, will, report)
    may_connect = context.broker.arrive(name, connection.identity, will, now, clean_start=packet.clean_start)
    if isinstance(may_connect, Refused):
        deny(context, connection, may_connect)
        return
    if may_connect:
        connect(now)
        return
    connection.state = MqttConnectionState.CHECKING  # until the session arrives from another edge
    previous = context.awaiting_session.get(name)
    context.awaiting_session[name] = AwaitingSession(connection, connect)
    if previous is not None and previous.connection.state is MqttConnectionState.CHECKING:
        previous.connection.state = MqttConnectionState.NEW
        deny(context, previous.connection, Refused(Reason.SESSION_TAKEN_OVER))


def _open_session(
    context: MqttContext,
    connection: MqttConnection,
    packet: Connect,
    user: str | None,
    name: EndpointId,
    will: SessionWill | None,
    report: Report | None,
    now: Instant,
) -> None:
    """Open the session, which is at this edge, and send CONNACK."""
    connection.state = MqttConnectionState.OPEN
    opened = _connect(context, connection, packet, name, will, now)
    if isinstance(opened, Refused):
        deny(context, connection, opened)
        return
    connection.session = opened.session
    connection.uncharged_messages += will is not None  # charged now: when it is published, its client has disconnected
    if report is not None:  # an implausible report is counted, and the client keeps its last position
        context.broker.report(opened.session, report, now)
    connection.awaits_storage = True  # a durable session may have ended for this one
    properties = _connack_properties(context, connection, packet, name)
    context.reply(connection, Connack(opened.is_resumed, Code.SUCCESS, properties))  # [MQTT-3.2.2-2]
    context.log.info_limited("session opened", client=name, user=user, address=connection.address, resumed=opened.is_resumed)


def _connect(
    context: MqttContext, connection: MqttConnection, packet: Connect, name: EndpointId, will: SessionWill | None, now: Instant
) -> ConnectResult | Refused:
    connection.aliases_out_max = packet.properties.topic_alias_maximum or 0
    is_own = connection.aliases_out_max > 0 or 0 < connection.packet_max < context.settings.packet_bytes_max + _GROWTH_BYTES_MAX
    encoding = ENCODING_V3 if connection.version is Version.V3 else ENCODING_OWN if is_own else ENCODING_V5
    _set_keep_alive(context, connection, packet)
    assert connection.identity is not None, "the client is authenticated"
    opened = context.broker.connect(
        name,
        connection=connection,
        identity=connection.identity,
        rates=context.rates,
        clean_start=packet.clean_start,  # [MQTT-3.1.2-4], [MQTT-3.1.2-5]
        expiry_ns=_expiry_s(context, packet) * SECOND_NS,
        window=packet.properties.receive_maximum or _RECEIVE_MAX,  # [MQTT-3.3.4-9]
        encoding=encoding,
        will=will,
        now=now,
    )
    if isinstance(opened, Refused):
        connection.state = MqttConnectionState.NEW
    return opened


def _expiry_s(context: MqttContext, packet: Connect) -> int:
    longest = context.broker.limits.session_expiry_s_max
    if packet.version is Version.V3:
        return 0 if packet.clean_start else longest  # 3.1.1 has no expiry property
    return min(packet.properties.session_expiry_s or 0, longest)  # [MQTT-3.1.2-23]


def _set_keep_alive(context: MqttContext, connection: MqttConnection, packet: Connect) -> None:
    longest_s = context.settings.keep_alive_s_max
    seconds = packet.keep_alive_s
    if longest_s and packet.version is Version.V5:
        seconds = min(seconds or longest_s, longest_s)
    connection.timeout_s = seconds * _KEEP_ALIVE_GRACE  # [MQTT-3.1.2-22]


def _connack_properties(context: MqttContext, connection: MqttConnection, packet: Connect, name: EndpointId) -> Properties:
    """Return the CONNACK properties for an MQTT 5 client."""
    settings = context.settings
    requested_s = packet.properties.session_expiry_s or 0
    granted_s = _expiry_s(context, packet)
    keep_alive_s = round(connection.timeout_s / _KEEP_ALIVE_GRACE)
    properties = Properties(
        topic_alias_maximum=settings.topic_alias_max,
        maximum_packet_size=settings.packet_bytes_max,
        receive_maximum=settings.receive_max,
        assigned_client_id=None if packet.client_id else name,  # [MQTT-3.2.2-16]
        session_expiry_s=granted_s if granted_s != requested_s else None,
        server_keep_alive_s=keep_alive_s if keep_alive_s != packet.keep_alive_s else None,  # [MQTT-3.2.2-21]
    )
    if packet.properties.request_response_information:
        return replace(properties, response_information=f"reply/{name}")
    return properties


def _will(context: MqttContext, packet: Connect, name: EndpointId, now: Instant) -> SessionWill | None:
    """Return the will, published if the connection ends without DISCONNECT; the broker checks it."""
    if packet.will is None:
        return None
    sent = packet.will
    metadata = parse_message_properties(sent.properties.user, sender=name, now=now)
    message_id = metadata.id if metadata is not None and metadata.id is not None else context.broker.next_id(now)
    publication = publication_from(sent.topic, sent.payload, sent.properties, metadata, name, message_id, now)
    publication.qos, publication.is_retained = sent.qos, sent.retain
    expiry_s = sent.properties.message_expiry_s
    return SessionWill(
        publication, (sent.properties.will_delay_s or 0) * SECOND_NS, None if expiry_s is None else expiry_s * SECOND_NS
    )


def version_of_connect(data: bytes) -> Version | None:
    """Return the protocol version of a CONNECT; None if *data* is another packet or an incomplete one."""
    if data[0] != PacketType.CONNECT << 4:
        return None
    try:
        frame = frame_at(data, 0, len(data))
    except Malformed:
        return None
    return None if frame is None else maybe_version(data[frame[0] : frame[1]])
