"""From a URL to an edge: which protocol, and with what."""

import ssl
from secrets import token_hex
from time import time_ns

from milepost.client.edge import Edge
from milepost.client.mqtt.carrier import MqttCarrier, Patience
from milepost.client.mqtt.session import Session, Setup
from milepost.client.mqtt.streams import target_of
from milepost.client.mqtt.words import will_of
from milepost.client.values import Publication
from milepost.model.endpoints import endpoint_id
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import Version, encode


def connect(
    url: str,
    *,
    client_id: str | None = None,
    user: str | None = None,
    password: str | bytes | None = None,
    tls: ssl.SSLContext | None = None,
    clean_start: bool = False,
    session_expiry_s: int = 3_600,
    keep_alive_s: int = 30,
    will: Publication | None = None,
    will_delay_s: int = 0,
    connect_within_s: float = 10.0,
    reconnect_within_s: float = 300.0,
    waiting_max: int = 1_000,
    receive_max: int = 100,
) -> Edge:
    """An edge that is not open yet: `async with connect(url) as edge`. Its URL begins with mqtt, mqtts, ws or wss.

    `client_id` is the name by which others address this endpoint and under which the edge keeps what waits for it, for
    `session_expiry_s`; without one it gets a name for this time only. `will` is published by the edge if the client goes without
    a goodbye. An edge that cannot be reached is tried for `connect_within_s`, one that was lost for `reconnect_within_s`.
    `waiting_max` publications may be unanswered, `receive_max` messages not yet taken by the application.
    """
    target = target_of(url)
    _check_limits(waiting_max, receive_max)
    secret = target.password if password is None else password
    setup = Setup(
        client_id=endpoint_id(f"client-{token_hex(8)}" if client_id is None else client_id),
        clean_start=clean_start,
        session_expiry_s=session_expiry_s,
        keep_alive_s=keep_alive_s,
        user=target.user if user is None else user,
        password=secret.encode() if isinstance(secret, str) else secret,
        will=None if will is None else will_of(will, will_delay_s, Instant(time_ns())),
        receive_max=receive_max,
    )
    session = Session(setup)
    encode(session.hello(), Version.V5)  # what cannot be said is found out now
    patience = Patience(connect_within_s, reconnect_within_s, waiting_max)
    carrier = MqttCarrier(target, session, tls=tls, patience=patience, forgets=client_id is None)
    return Edge(carrier, unclaimed_max=max(1, receive_max // 2))


def _check_limits(waiting_max: int, receive_max: int) -> None:
    if waiting_max < 1:
        raise Malformed(Reason.FIELD_RANGE, f"waiting_max is {waiting_max}, not above 0")
    if not 1 <= receive_max <= 65_535:
        raise Malformed(Reason.FIELD_RANGE, f"receive_max is {receive_max}, not in 1..65535")
