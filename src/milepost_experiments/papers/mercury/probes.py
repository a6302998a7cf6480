"""Probes: send an emergency to an edge over UDP, and wait for its alert."""

import os
import random
import socket
import time
from typing import Final

from milepost.model import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.session_datagrams import MessageName, PublishDatagram, ReceivedDatagram
from milepost_experiments.papers.load.endpoints import Endpoint
from milepost_experiments.papers.load.programs import LoadFailed

ALERT: Final = "Alert"
PAUSE_S_MAX: Final = 0.006
ANSWER_S_MAX: Final = 5.0
_OTHER_DATAGRAMS_MAX: Final = 100


def emergency(endpoint: Endpoint) -> bytes:
    """Return the datagram of a message that raises an alert."""
    message = Message(
        MessageId(int.from_bytes(os.urandom(7)) + 1),
        endpoint.name,
        "Emergency",
        Instant(time.time_ns()),
        place=endpoint.place,
        priority=Priority.EMERGENCY,
        reliable=True,
        body=b"rocks on the road",
    )
    return endpoint.seal(PublishDatagram(message, endpoint.token))


def probe(prober: Endpoint, port: int, probes: int) -> list[float]:
    """Return the milliseconds from each emergency to its alert, sent one after the other with random pauses."""
    times_ms = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        sock.settimeout(ANSWER_S_MAX)
        for _ in range(probes):
            time.sleep(random.uniform(0.0, PAUSE_S_MAX))
            data = emergency(prober)
            began = time.perf_counter()
            sock.send(data)
            times_ms.append((receive_alert(prober, sock) - began) * 1e3)
    return times_ms


def receive_alert(prober: Endpoint, sock: socket.socket) -> float:
    """Return when the alert arrived, and acknowledge it; raise `LoadFailed` if it is lost, which ends the evaluation."""
    for _ in range(_OTHER_DATAGRAMS_MAX):
        try:
            data = sock.recv(2048)
        except TimeoutError:
            raise LoadFailed(f"no alert to {prober.name} within {sock.gettimeout():g} s") from None
        at = time.perf_counter()
        value = prober.open(data)
        if isinstance(value, PublishDatagram) and value.message.topic == ALERT:
            sock.send(prober.seal(ReceivedDatagram(MessageName(value.message.source, value.message.id), prober.token)))
            return at
    raise LoadFailed(f"no alert among {_OTHER_DATAGRAMS_MAX} datagrams")
