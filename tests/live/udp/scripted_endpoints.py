"""A scripted endpoint: the client's session over a socket that the test controls."""

import os
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from live.udp.edges import EDGE_NAME, HERE, UdpEdge
from milepost.client.events import Connected, Event
from milepost.client.trust import ClientTrust
from milepost.client.udp.encryption import NoiseCredentials
from milepost.client.udp.handshake import UdpSetup
from milepost.client.udp.session import UdpSession
from milepost.listeners.udp.batch_io import BatchSender, sockaddr_of
from milepost.model import EndpointId, Message, Place, Report
from milepost.model.instants import Instant
from milepost.model.messages import MessageId
from milepost.runtime.trust_files import read_certificate_file

WAIT_S: Final = 20.0
BATCH: Final = 256


def edge_key_of(edge: UdpEdge) -> bytes:
    """Return the public key of an encrypted edge."""
    assert edge.authority is not None
    return read_certificate_file(edge.authority.issued / f"{EDGE_NAME}.cert").key


class ScriptedEndpoint:
    """One endpoint; datagrams are sent only by `send`."""

    def __init__(self, edge: UdpEdge, name: str) -> None:
        assert edge.authority is not None
        trust = edge.authority.credentials(name)
        assert trust.certificate is not None
        credentials = NoiseCredentials(trust.certificate, trust.key, edge_key_of(edge))
        self.name = EndpointId(name)
        self.events: list[Event] = []
        self.received: list[bytes] = []
        self._session = UdpSession(UdpSetup(self.name, credentials, ClientTrust(trust.ca), 1_000_000), os.urandom)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(0.05)
        self._socket.connect(("127.0.0.1", edge.udp))
        self._made = 0

    def __enter__(self) -> "ScriptedEndpoint":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def start(self) -> None:
        """Request a session and receive the reply; send nothing after it yet."""
        self._session.start(self.report_of(HERE), now())
        self.send()
        self.wait(lambda: any(isinstance(one, Connected) for one in self.events), answers=False)

    def report_of(self, place: Place) -> Report:
        return Report(self.name, place, now())

    def report(self, place: Place = HERE) -> None:
        self._session.report(self.report_of(place), now())

    def publish(self, topic: str, body: bytes, *, reliable: bool = False) -> None:
        self._made += 1
        self._session.publish(
            Message(MessageId(now() + self._made), self.name, topic, now(), reliable=reliable, body=body), now()
        )

    def take(self) -> list[bytes]:
        """Return the datagrams to send."""
        return self._session.take_outgoing()

    def send(self) -> None:
        for data in self.take():
            self._socket.send(data)

    def receive(self) -> None:
        """Receive one datagram, or time out after 50 ms."""
        try:
            data = self._socket.recv(65_536)
        except TimeoutError:
            self._session.on_tick(now())
            return
        self.received.append(data)
        self._session.on_datagram(data, now())
        self.events += self._session.take_events()

    def wait(self, condition: Callable[[], bool], *, answers: bool = True) -> None:
        """Receive, and with *answers* reply, until the *condition* holds."""
        until = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < until, f"the condition never held: {self.events}"
            self.receive()
            if answers:
                self.send()


class Cannon:
    """Sends many datagrams to an edge at once, from one socket of its own."""

    def __init__(self, edge: UdpEdge) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.9.9", 0))
        self._outbound = BatchSender(self._socket, batch=BATCH)
        self._address: NDArray[np.uint8] = np.frombuffer(sockaddr_of("127.0.0.1", edge.udp), np.uint8)

    def fire(self, datagrams: list[bytes]) -> None:
        while datagrams:
            done = self._outbound.send_many(datagrams, np.tile(self._address, (len(datagrams), 1)))
            datagrams = datagrams[done:]

    def close(self) -> None:
        self._socket.close()


def now() -> Instant:
    return Instant(time.time_ns())
