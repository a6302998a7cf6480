"""From a URL and options to a `Client`: choice and setup of the protocol."""

import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from time import time_ns
from typing import TYPE_CHECKING, Final

from milepost.client.client import Client
from milepost.client.messages import OutgoingMessage
from milepost.client.mqtt.mapping import will_of
from milepost.client.mqtt.session import MqttSession, MqttSetup
from milepost.client.mqtt.streams import UDP_SCHEMES, MqttTarget, target_of
from milepost.client.mqtt.transport import MqttTransport
from milepost.client.transport import ClientLimits
from milepost.client.udp.credentials import Credentials
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.incidents import ALERT_TOPICS
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.trust.pem import AUTHORITY, bytes_from_text
from milepost.wire.mqtt import Version, encode

if TYPE_CHECKING:
    from milepost.client.trust import ClientTrust

SESSION_EXPIRY_S: Final = 3_600
KEEP_ALIVE_S: Final = 30


def is_udp(url: str) -> bool:
    """Return whether a URL selects UDP."""
    return url.partition("://")[0] in UDP_SCHEMES


def connect(
    url: str,
    *,
    client_id: str | None = None,
    user: str | None = None,
    password: str | bytes | None = None,
    tls: ssl.SSLContext | None = None,
    clean_start: bool = False,
    session_expiry_s: int = SESSION_EXPIRY_S,
    keep_alive_s: int = KEEP_ALIVE_S,
    will: OutgoingMessage | None = None,
    will_delay_s: int = 0,
    place: Place | None = None,
    ca: bytes | str | Path | None = None,
    signed_topics: Sequence[str] | None = None,
    credentials: Credentials | None = None,
    edge_key: bytes | None = None,
    resolver: tuple[str, int] | None = None,
    joins_multicast: bool = False,
    connect_within_s: float = 10.0,
    reconnect_within_s: float = 300.0,
    pending_max: int = 1_000,
    receive_max: int = 100,
) -> Client:
    """Return a client that is not yet open: `async with connect(url) as client`. The URL scheme is mqtt, mqtts, ws, wss, udp,
    udp+srv or udp+find.

    `client_id` is the name by which others address this endpoint; the default is a random name for this connection only. The
    first connection is attempted for `connect_within_s`, a lost one for `reconnect_within_s`. At most `pending_max` publications
    may be unanswered, and at most `receive_max` messages not yet taken by the application.

    `ca` is the certificate authority whose signers this client trusts, as the file authority.pub or its 32 bytes; messages with
    an invalid signature are then suppressed, and so are unsigned ones on `signed_topics` (default: alerts; none: ()).
    `credentials` are the endpoint's certificate, its keys and the certificate authority: over UDP the identity of the session,
    over both protocols that of an operator who signs messages.

    MQTT: the edge stores the session and its queued messages for `session_expiry_s`; the edge publishes `will` if the client
    disconnects without DISCONNECT. UDP: `place` is the endpoint's position on connecting, `edge_key` is the edge's public
    key, if known; `resolver` replaces the system's DNS servers for udp+srv. With `joins_multicast` the endpoint joins the
    multicast groups for messages to an area.
    """
    _check_limits(pending_max, receive_max)
    limits = ClientLimits(connect_within_s, reconnect_within_s, pending_max)
    client_id = _certified_name(client_id, credentials)
    trust = _maybe_trust(ca, credentials, signed_topics)
    name = EndpointId(f"client-{token_hex(8)}") if client_id is None else endpoint_id(client_id)
    secret = password.encode() if isinstance(password, str) else password
    last_will = None if will is None else will_of(will, will_delay_s, Instant(time_ns()))
    setup = MqttSetup(name, clean_start, session_expiry_s, keep_alive_s, user, secret, last_will, receive_max)
    if is_udp(url):
        _refuse_mqtt_options(setup, tls)
        from milepost.client.udp.transport import udp_transport  # noqa: PLC0415  # imports OpenSSL and protobuf

        transport = udp_transport(
            url, client_id, place, credentials, trust, edge_key, resolver, limits, receive_max, joins_multicast=joins_multicast
        )
        return Client(transport, unclaimed_max=max(1, receive_max // 2))
    _refuse_udp_options(place=place, edge_key=edge_key, resolver=resolver, joins_multicast=joins_multicast or None)
    return _over_mqtt(target_of(url), setup, tls, limits, trust, credentials, discards_session=client_id is None)


def _over_mqtt(
    target: MqttTarget,
    setup: MqttSetup,
    tls: ssl.SSLContext | None,
    limits: ClientLimits,
    trust: "ClientTrust | None",
    credentials: Credentials | None,
    *,
    discards_session: bool,
) -> Client:
    secret = target.password.encode() if setup.password is None and target.password is not None else setup.password
    session = MqttSession(replace(setup, user=target.user if setup.user is None else setup.user, password=secret), trust)
    encode(session.connect_packet(), Version.V5)  # raise now if CONNECT cannot be encoded
    transport = MqttTransport(target, session, tls=tls, limits=limits, discards_session=discards_session, credentials=credentials)
    return Client(transport, unclaimed_max=max(1, setup.receive_max // 2))


def _certified_name(client_id: str | None, credentials: Credentials | None) -> str | None:
    """Return the name of the endpoint: the one in its certificate, if it has one."""
    certificate = None if credentials is None else credentials.certificate
    if certificate is None:
        return client_id
    if client_id not in (None, certificate.id):
        raise Malformed(
            Reason.FIELD_RANGE, f"client_id is {client_id!r}, but the certificate is for {certificate.id!r}: omit client_id"
        )
    return certificate.id


def _maybe_trust(
    ca: bytes | str | Path | None, credentials: Credentials | None, signed_topics: Sequence[str] | None
) -> "ClientTrust | None":
    public = ca if ca is None or isinstance(ca, bytes) else bytes_from_text(Path(ca).read_text(), AUTHORITY)
    if credentials is not None:
        if public not in (None, credentials.ca):
            raise Malformed(Reason.FIELD_RANGE, "ca is not the certificate authority in credentials: give one of the two")
        public = credentials.ca
    if public is None:
        if signed_topics:
            raise Malformed(Reason.FIELD_MISSING, "signed_topics: signatures are verified under a certificate authority; give ca")
        return None
    from milepost.client.trust import ClientTrust  # noqa: PLC0415  # imports OpenSSL and protobuf

    return ClientTrust(Credentials(public).ca, ALERT_TOPICS if signed_topics is None else signed_topics)


def _refuse_mqtt_options(setup: MqttSetup, tls: ssl.SSLContext | None) -> None:
    """Refuse the options of MQTT: over UDP the edge stores no session, and endpoints authenticate with a certificate."""
    given = {
        "user": setup.user is not None,
        "password": setup.password is not None,
        "tls": tls is not None,
        "will": setup.will is not None,
        "clean_start": setup.clean_start,
        "session_expiry_s": setup.session_expiry_s != SESSION_EXPIRY_S,
        "keep_alive_s": setup.keep_alive_s != KEEP_ALIVE_S,
    }
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise Malformed(Reason.FIELD_RANGE, f"{wrong[0]} is an option of MQTT only: remove it, or use an mqtt:// URL")


def _refuse_udp_options(**options: object) -> None:
    """Refuse the options of UDP, which MQTT does not have."""
    for name, value in options.items():
        if value is not None:
            raise Malformed(Reason.FIELD_RANGE, f"{name} is an option of udp only: remove it, or use a udp:// URL")


def _check_limits(pending_max: int, receive_max: int) -> None:
    if pending_max < 1:
        raise Malformed(Reason.FIELD_RANGE, f"pending_max is {pending_max}, not above 0")
    if not 1 <= receive_max <= 65_535:
        raise Malformed(Reason.FIELD_RANGE, f"receive_max is {receive_max}, not in 1..65535")
