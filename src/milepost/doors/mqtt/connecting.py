"""Connecting: from CONNECT to CONNACK, or to a refusal that says why."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from os import urandom
from typing import Final

from milepost.doors.mqtt.desk import Arriving, Desk
from milepost.doors.mqtt.incoming import parcel_from
from milepost.doors.mqtt.link import DIALECT_OWN, DIALECT_V3, DIALECT_V5, MqttLink, State
from milepost.doors.mqtt.subscribing import ask_again
from milepost.edge.corridor import Opened
from milepost.edge.sessions import Will
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.vetting.access import Who
from milepost.wire.asks import report_from, words_of_message
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

EXPIRES_NEVER_S: Final = 0xFFFFFFFF
_RECEIVE_MAX: Final = 65_535
_GROWTH_BYTES_MAX: Final = 8_192
"""So much longer than it came a packet may be when it goes out: labels of subscriptions, an expiry."""
_KEEP_ALIVE_GRACE: Final = 1.5

BeginCheck = Callable[[str, bytes], None]
"""Begins to check a user's password; `admit` or `deny` is called when it is known."""


def on_connect(desk: Desk, link: MqttLink, packet: Connect, check_password: BeginCheck, now: Instant) -> None:
    """A client introduces itself."""
    link.version = packet.version
    properties = packet.properties
    link.is_telling = properties.request_problem_information is not False
    link.packet_max = properties.maximum_packet_size or 0
    if properties.authentication_method is not None:  # [MQTT-4.12.0-1]
        deny(desk, link, Refused(Reason.AUTHENTICATION_METHOD, properties.authentication_method[:40]))
        return
    if not packet.client_id and packet.version is Version.V3 and not packet.clean_start:  # 3.1.1 [MQTT-3.1.3-8]
        deny(desk, link, Refused(Reason.CLIENT_ID, "an empty client id needs a clean session"))
        return
    user = link.stream.maybe_common_name()
    if user is not None or not desk.rules.needs_password:
        admit(desk, link, packet, user or packet.username, now)
    elif packet.username is None:
        deny(desk, link, Refused(Reason.BAD_CREDENTIALS, "no user name was given"))
    else:
        link.state = State.CHECKING
        check_password(packet.username, packet.password or b"")


def deny(desk: Desk, link: MqttLink, refused: Refused) -> None:
    """Answer CONNECT with a refusal. [MQTT-3.2.2-7]"""
    desk.counted(refused)
    code = fitting(code_of(refused.reason), Kind.CONNACK)
    packet = encode(Connack(False, code, desk.because(link, refused, is_always=True)), link.version)
    if not link.packet_max or len(packet) <= link.packet_max:
        desk.sender.put(link, packet)
    link.state = State.CLOSING
    desk.closing.append(link)
    desk.log.seldom("connection refused", address=link.address, reason=refused.reason.name, detail=refused.detail)


def admit(desk: Desk, link: MqttLink, packet: Connect, user: str | None, now: Instant) -> None:
    """The client is who it says it is: open its session. [MQTT-3.1.4-2] to [MQTT-3.1.4-5]"""
    try:
        name = endpoint_id(packet.client_id or f"auto-{urandom(8).hex()}")  # [MQTT-3.1.3-6], [MQTT-3.1.3-7]
        link.who = Who(name, user)
        link.routes = desk.new_routes()
        link.state = State.OPEN
        will = _will(desk, link, packet, name, now)
        report = report_from(packet.properties.user, sender=name, now=now)
    except Malformed as fault:
        reason = Reason.CLIENT_ID if fault.reason is Reason.ENDPOINT_ID else fault.reason
        deny(desk, link, Refused(reason, fault.detail))
        return
    if isinstance(will, Refused):
        deny(desk, link, will)
        return
    enter = partial(_enter, desk, link, packet, user, name, will, report)
    elsewhere = desk.corridor.elsewhere
    if elsewhere is None or elsewhere.arrive(name, now, is_fresh=packet.clean_start):
        enter(now)
        return
    link.state = State.CHECKING  # its session is at another edge, and on its way
    former = desk.arriving.get(name)
    desk.arriving[name] = Arriving(link, enter)
    if former is not None and former.link.state is State.CHECKING:
        former.link.state = State.NEW
        deny(desk, former.link, Refused(Reason.SESSION_TAKEN_OVER))


def _enter(
    desk: Desk,
    link: MqttLink,
    packet: Connect,
    user: str | None,
    name: EndpointId,
    will: Will | None,
    report: Report | None,
    now: Instant,
) -> None:
    """The session can be opened."""
    link.state = State.OPEN
    opened = _open(desk, link, packet, name, will, now)
    if isinstance(opened, Refused):
        deny(desk, link, opened)
        return
    link.session = opened.session
    ask_again(desk, link, opened.session)
    if report is not None:
        desk.corridor.report(opened.session, report, now)  # if it cannot be true, that is counted, and the client is where it was
    link.has_promised = True  # a session that was kept may have ended for this one
    desk.reply(link, Connack(opened.is_resumed, Code.SUCCESS, _announced(desk, link, packet, name)))  # [MQTT-3.2.2-2]
    desk.log.seldom("session opened", client=name, user=user, address=link.address, resumed=opened.is_resumed)


def _open(desk: Desk, link: MqttLink, packet: Connect, name: EndpointId, will: Will | None, now: Instant) -> Opened | Refused:
    link.aliases_out_max = packet.properties.topic_alias_maximum or 0
    is_own = link.aliases_out_max > 0 or 0 < link.packet_max < desk.settings.packet_bytes_max + _GROWTH_BYTES_MAX
    dialect = DIALECT_V3 if link.version is Version.V3 else DIALECT_OWN if is_own else DIALECT_V5
    _set_keep_alive(desk, link, packet)
    opened = desk.corridor.open(
        name,
        link=link,
        is_fresh=packet.clean_start,  # [MQTT-3.1.2-4], [MQTT-3.1.2-5]
        expiry_ns=_expiry_s(desk, packet) * SECOND_NS,
        window=packet.properties.receive_maximum or _RECEIVE_MAX,  # [MQTT-3.3.4-9]
        dialect=dialect,
        will=will,
        now=now,
    )
    if isinstance(opened, Refused):
        link.state = State.NEW
    return opened


def _expiry_s(desk: Desk, packet: Connect) -> int:
    longest = desk.corridor.limits.session_expiry_s_max
    if packet.version is Version.V3:
        return 0 if packet.clean_start else longest  # 3.1.1 has no other way to say it
    return min(packet.properties.session_expiry_s or 0, longest)  # [MQTT-3.1.2-23]


def _set_keep_alive(desk: Desk, link: MqttLink, packet: Connect) -> None:
    most = desk.settings.keep_alive_s_max
    seconds = packet.keep_alive_s
    if most and packet.version is Version.V5:
        seconds = min(seconds or most, most)
    link.patience_s = seconds * _KEEP_ALIVE_GRACE  # [MQTT-3.1.2-22]


def _announced(desk: Desk, link: MqttLink, packet: Connect, name: EndpointId) -> Properties:
    """What MQTT 5 clients are told with CONNACK."""
    settings = desk.settings
    asked_s = packet.properties.session_expiry_s or 0
    given_s = _expiry_s(desk, packet)
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


def _will(desk: Desk, link: MqttLink, packet: Connect, name: EndpointId, now: Instant) -> Will | Refused | None:
    """What is published if the client goes without a goodbye; looked at now, when the client can still be told."""
    if packet.will is None:
        return None
    sent = packet.will
    route = desk.route(link, sent.topic, now)
    if route.refused is not None or route.is_service:
        return route.refused or Refused(Reason.TOPIC_RESERVED, f"a will on {sent.topic}")
    if route.check is not None and (refused := route.check(sent.payload)) is not None:
        return refused
    words = words_of_message(sent.properties.user, sender=name, now=now)
    parcel = parcel_from(sent.topic, sent.payload, sent.properties, words, name, route.priority, now)
    if route.within_m and parcel.place is not None:  # where it will be by then nobody knows
        return Refused(Reason.PLACE_NOT_SEEN, f"a will on {sent.topic} that names a place")
    parcel.qos, parcel.is_retained = sent.qos, sent.retain
    expiry_s = sent.properties.message_expiry_s
    return Will(parcel, (sent.properties.will_delay_s or 0) * SECOND_NS, None if expiry_s is None else expiry_s * SECOND_NS)


def version_of_connect(data: bytes) -> Version | None:
    """The version in which to answer what may be a CONNECT; nothing if it is none, or not all there."""
    if data[0] != Kind.CONNECT << 4:
        return None
    try:
        frame = frame_at(data, 0, len(data))
    except Malformed:
        return None
    return None if frame is None else maybe_version(data[frame[0] : frame[1]])
