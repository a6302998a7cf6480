"""The MQTT handshake: from CONNECT to CONNACK with success or a reason code."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import urandom
from typing import Final

from milepost.broker.broker import Opened
from milepost.broker.session import Will
from milepost.listeners.mqtt.connection import ENCODING_OWN, ENCODING_V3, ENCODING_V5, MqttConnection, State
from milepost.listeners.mqtt.context import Arriving, MqttContext
from milepost.listeners.mqtt.publish import publication_from
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.vetting.access import ClientIdentity
from milepost.wire.mqtt import (
    Code,
    Connack,
    Connect,
    Kind,
    Properties,
    Version,
    code_of,
    encode,
    fitting,
    frame_at,
    maybe_version,
)
from milepost.wire.user_properties import report_from_properties, words_from_properties

EXPIRES_NEVER_S: Final = 0xFFFFFFFF
_RECEIVE_MAX: Final = 65_535
_GROWTH_BYTES_MAX: Final = 8_192
"""Maximum bytes the edge adds to a packet that it forwards: subscription identifiers, an expiry."""
_KEEP_ALIVE_GRACE: Final = 1.5

BeginCheck = Callable[[str, bytes], None]
"""Starts the check of a user's password; `admit` or `deny` is called with the outcome."""


def on_connect(context: MqttContext, link: MqttConnection, packet: Connect, check_password: BeginCheck, now: Instant) -> None:
    """Check a CONNECT, then admit the client, deny it, or start the check of its password."""
    link.version = packet.version
    properties = packet.properties
    link.is_telling = properties.request_problem_information is not False
    link.wants_ids = bool(properties.request_response_information)
    link.packet_max = properties.maximum_packet_size or 0
    if properties.authentication_method is not None:  # [MQTT-4.12.0-1]
        deny(context, link, Refused(Reason.AUTHENTICATION_METHOD, properties.authentication_method[:40]))
        return
    if not packet.client_id and packet.version is Version.V3 and not packet.clean_start:  # 3.1.1 [MQTT-3.1.3-8]
        deny(context, link, Refused(Reason.CLIENT_ID, "an empty client id needs a clean session"))
        return
    user = link.stream.maybe_common_name()
    if user is not None or not context.broker.rules.needs_password:
        admit(context, link, packet, user or packet.username, now)
    elif packet.username is None:
        deny(context, link, Refused(Reason.BAD_CREDENTIALS, "no user name was given"))
    else:
        link.state = State.CHECKING
        check_password(packet.username, packet.password or b"")


def deny(context: MqttContext, link: MqttConnection, refused: Refused) -> None:
    """Answer CONNECT with an error code and close the connection. [MQTT-3.2.2-7]"""
    context.broker.refuse(refused)
    code = fitting(code_of(refused.reason), Kind.CONNACK)
    packet = encode(Connack(False, code, context.because(link, refused, is_always=True)), link.version)
    if not link.packet_max or len(packet) <= link.packet_max:
        context.sender.put(link, packet)
    link.state = State.CLOSING
    context.closing.append(link)
    context.log.seldom("connection refused", address=link.address, reason=refused.reason.name, detail=refused.detail)


def admit(context: MqttContext, link: MqttConnection, packet: Connect, user: str | None, now: Instant) -> None:
    """Open the session of an authenticated client. [MQTT-3.1.4-2] to [MQTT-3.1.4-5]"""
    try:
        name = endpoint_id(packet.client_id or f"auto-{urandom(8).hex()}")  # [MQTT-3.1.3-6], [MQTT-3.1.3-7]
        link.who = ClientIdentity(name, user)
        link.state = State.OPEN
        will = _will(context, packet, name, now)
        report = report_from_properties(packet.properties.user, sender=name, now=now)
    except Malformed as fault:
        reason = Reason.CLIENT_ID if fault.reason is Reason.ENDPOINT_ID else fault.reason
        deny(context, link, Refused(reason, fault.detail))
        return
    enter = partial(_enter, context, link, packet, user, name, will, report)
    may_enter = context.broker.arrive(name, link.who, will, now, is_fresh=packet.clean_start)
    if isinstance(may_enter, Refused):
        deny(context, link, may_enter)
        return
    if may_enter:
        enter(now)
        return
    link.state = State.CHECKING  # until the session arrives from another edge
    former = context.arriving.get(name)
    context.arriving[name] = Arriving(link, enter)
    if former is not None and former.link.state is State.CHECKING:
        former.link.state = State.NEW
        deny(context, former.link, Refused(Reason.SESSION_TAKEN_OVER))


def _enter(
    context: MqttContext,
    link: MqttConnection,
    packet: Connect,
    user: str | None,
    name: EndpointId,
    will: Will | None,
    report: Report | None,
    now: Instant,
) -> None:
    """Open the session, which is at this edge, and send CONNACK."""
    link.state = State.OPEN
    opened = _open(context, link, packet, name, will, now)
    if isinstance(opened, Refused):
        deny(context, link, opened)
        return
    link.session = opened.session
    link.owed_messages += will is not None  # charged now: when it is published, its client is gone
    if report is not None:  # an implausible report is counted, and the client keeps its last position
        context.broker.report(opened.session, report, now)
    link.has_promised = True  # a durable session may have ended for this one
    context.reply(link, Connack(opened.is_resumed, Code.SUCCESS, _announced(context, link, packet, name)))  # [MQTT-3.2.2-2]
    context.log.seldom("session opened", client=name, user=user, address=link.address, resumed=opened.is_resumed)


def _open(
    context: MqttContext, link: MqttConnection, packet: Connect, name: EndpointId, will: Will | None, now: Instant
) -> Opened | Refused:
    link.aliases_out_max = packet.properties.topic_alias_maximum or 0
    is_own = link.aliases_out_max > 0 or 0 < link.packet_max < context.settings.packet_bytes_max + _GROWTH_BYTES_MAX
    encoding = ENCODING_V3 if link.version is Version.V3 else ENCODING_OWN if is_own else ENCODING_V5
    _set_keep_alive(context, link, packet)
    assert link.who is not None, "the client is authenticated"
    opened = context.broker.connect(
        name,
        link=link,
        who=link.who,
        rates=context.rates,
        is_fresh=packet.clean_start,  # [MQTT-3.1.2-4], [MQTT-3.1.2-5]
        expiry_ns=_expiry_s(context, packet) * SECOND_NS,
        window=packet.properties.receive_maximum or _RECEIVE_MAX,  # [MQTT-3.3.4-9]
        encoding=encoding,
        will=will,
        now=now,
    )
    if isinstance(opened, Refused):
        link.state = State.NEW
    return opened


def _expiry_s(context: MqttContext, packet: Connect) -> int:
    longest = context.broker.limits.session_expiry_s_max
    if packet.version is Version.V3:
        return 0 if packet.clean_start else longest  # 3.1.1 has no expiry property
    return min(packet.properties.session_expiry_s or 0, longest)  # [MQTT-3.1.2-23]


def _set_keep_alive(context: MqttContext, link: MqttConnection, packet: Connect) -> None:
    most = context.settings.keep_alive_s_max
    seconds = packet.keep_alive_s
    if most and packet.version is Version.V5:
        seconds = min(seconds or most, most)
    link.patience_s = seconds * _KEEP_ALIVE_GRACE  # [MQTT-3.1.2-22]


def _announced(context: MqttContext, link: MqttConnection, packet: Connect, name: EndpointId) -> Properties:
    """Return the CONNACK properties for an MQTT 5 client."""
    settings = context.settings
    asked_s = packet.properties.session_expiry_s or 0
    given_s = _expiry_s(context, packet)
    keep_alive_s = round(link.patience_s / _KEEP_ALIVE_GRACE)
    announced = Properties(
        topic_alias_maximum=settings.topic_alias_max,
        maximum_packet_size=settings.packet_bytes_max,
        receive_maximum=settings.receive_max,
        assigned_client_id=None if packet.client_id else name,  # [MQTT-3.2.2-16]
        session_expiry_s=given_s if given_s != asked_s else None,
        server_keep_alive_s=keep_alive_s if keep_alive_s != packet.keep_alive_s else None,  # [MQTT-3.2.2-21]
    )
    if packet.properties.request_response_information:
        return replace(announced, response_information=f"reply/{name}")
    return announced


def _will(context: MqttContext, packet: Connect, name: EndpointId, now: Instant) -> Will | None:
    """Return the will, published if the connection ends without DISCONNECT; the broker checks it."""
    if packet.will is None:
        return None
    sent = packet.will
    words = words_from_properties(sent.properties.user, sender=name, now=now)
    message_id = words.id if words is not None and words.id is not None else context.broker.next_id(now)
    publication = publication_from(sent.topic, sent.payload, sent.properties, words, name, message_id, now)
    publication.qos, publication.is_retained = sent.qos, sent.retain
    expiry_s = sent.properties.message_expiry_s
    return Will(publication, (sent.properties.will_delay_s or 0) * SECOND_NS, None if expiry_s is None else expiry_s * SECOND_NS)


def version_of_connect(data: bytes) -> Version | None:
    """Return the protocol version of a CONNECT; None if *data* is another packet or an incomplete one."""
    if data[0] != Kind.CONNECT << 4:
        return None
    try:
        frame = frame_at(data, 0, len(data))
    except Malformed:
        return None
    return None if frame is None else maybe_version(data[frame[0] : frame[1]])
