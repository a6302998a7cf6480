"""From a URL to an edge: which protocol, and with what."""

import ssl
from dataclasses import replace
from secrets import token_hex
from time import time_ns
from typing import Final

from milepost.client.edge import Edge
from milepost.client.mqtt.carrier import MqttCarrier
from milepost.client.mqtt.session import Session, Setup
from milepost.client.mqtt.streams import Target, target_of
from milepost.client.mqtt.words import will_of
from milepost.client.patience import Patience
from milepost.client.udp.targets import is_udp
from milepost.client.udp.trust import Trust
from milepost.client.values import Publication
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import Version, encode

SESSION_EXPIRY_S: Final = 3_600
KEEP_ALIVE_S: Final = 30


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
    will: Publication | None = None,
    will_delay_s: int = 0,
    place: Place | None = None,
    trust: Trust | None = None,
    edge_key: bytes | None = None,
    resolver: tuple[str, int] | None = None,
    hears_cells: bool = False,
    connect_within_s: float = 10.0,
    reconnect_within_s: float = 300.0,
    waiting_max: int = 1_000,
    receive_max: int = 100,
) -> Edge:
    """An edge that is not open yet: `async with connect(url) as edge`. Its URL begins with mqtt, mqtts, ws, wss or udp.

    `client_id` is the name by which others address this endpoint; without one it gets a name for this time only. An edge that
    cannot be reached is tried for `connect_within_s`, one that was lost for `reconnect_within_s`. `waiting_max` publications
    may be unanswered, `receive_max` messages not yet taken by the application.

    Over MQTT the edge keeps what waits for the client for `session_expiry_s`; `will` is published by the edge if the client goes
    without a goodbye. Over UDP `place` is where the endpoint is when it connects, `trust` shows who it is and whom it believes,
    `edge_key` is the edge's public key, if it is known; `resolver` answers for udp+srv in place of the system's DNS servers.
    With `hears_cells` it listens where the edge multicasts messages to an area.
    """
    _check_limits(waiting_max, receive_max)
    patience = Patience(connect_within_s, reconnect_within_s, waiting_max)
    setup = Setup(
        client_id=EndpointId(f"client-{token_hex(8)}") if client_id is None else endpoint_id(client_id),
        clean_start=clean_start,
        session_expiry_s=session_expiry_s,
        keep_alive_s=keep_alive_s,
        user=user,
        password=password.encode() if isinstance(password, str) else password,
        will=None if will is None else will_of(will, will_delay_s, Instant(time_ns())),
        receive_max=receive_max,
    )
    if is_udp(url):
        _check_nothing_of_mqtt(setup, tls)
        from milepost.client.udp.connecting import over_udp  # noqa: PLC0415  # brings OpenSSL and protobuf

        return over_udp(url, client_id, place, trust, edge_key, resolver, patience, receive_max, hears_cells=hears_cells)
    options = {"place": place, "trust": trust, "edge_key": edge_key, "resolver": resolver, "hears_cells": hears_cells or None}
    for name, given in options.items():
        if given is not None:
            raise Malformed(Reason.FIELD_RANGE, f"{name} has a meaning over udp only")
    return _over_mqtt(target_of(url), setup, tls, patience, forgets=client_id is None)


def _over_mqtt(target: Target, setup: Setup, tls: ssl.SSLContext | None, patience: Patience, *, forgets: bool) -> Edge:
    secret = target.password.encode() if setup.password is None and target.password is not None else setup.password
    session = Session(replace(setup, user=target.user if setup.user is None else setup.user, password=secret))
    encode(session.hello(), Version.V5)  # what cannot be said is found out now
    carrier = MqttCarrier(target, session, tls=tls, patience=patience, forgets=forgets)
    return Edge(carrier, unclaimed_max=max(1, setup.receive_max // 2))


def _check_nothing_of_mqtt(setup: Setup, tls: ssl.SSLContext | None) -> None:
    """Over udp the edge keeps no session for who is away, and who asks is shown by a certificate."""
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
        raise Malformed(Reason.FIELD_RANGE, f"{wrong[0]} has a meaning over mqtt only")


def _check_limits(waiting_max: int, receive_max: int) -> None:
    if waiting_max < 1:
        raise Malformed(Reason.FIELD_RANGE, f"waiting_max is {waiting_max}, not above 0")
    if not 1 <= receive_max <= 65_535:
        raise Malformed(Reason.FIELD_RANGE, f"receive_max is {receive_max}, not in 1..65535")
