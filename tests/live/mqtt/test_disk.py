"""The broker's disk is full or read-only: it reports this, keeps serving what needs no disk, and recovers by itself.

A disk that is in use cannot be made read-only (the kernel says it is busy), so that case is one of starting.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from live.mqtt.brokers import Broker, Setup, ours_only
from live.mqtt.connections import Connections, ConnectTo
from live.mqtt.packets import V4, Kind, P, Value, publish
from live.mqtt.raw_client import Closed, RawClient
from parts import need

LASTING = [(P.SESSION_EXPIRY, 300)]
KILOBYTE = b"." * 1000
RECOVERY_S = 15.0

pytestmark = ours_only("Mosquitto acknowledges before it saves")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Broker]:
    """Start a broker whose data are on a tmpfs of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk; fix: sudo make test")
    broker = Broker(Setup(tmp_path))
    broker.setup.data.mkdir()
    subprocess.run([need("mount", debian="mount"), "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(broker.setup.data)], check=True)
    try:
        broker.start()
        yield broker
        assert broker.faults() == []
    finally:
        broker.end()
        subprocess.run([need("umount", debian="mount"), "--lazy", str(broker.setup.data)], check=True)


def remount(broker: Broker, option: str) -> None:
    subprocess.run([need("mount", debian="mount"), "-o", f"remount,{option}", str(broker.setup.data)], check=True)


@dataclass
class Filled:
    """The messages that filled the disk, accepted or refused."""

    accepted: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    reason_strings: list[Value | None] = field(default_factory=list)
    """Reason strings of the refusals."""


def fill(connections: Connections, qos: int = 1) -> Filled:
    """Publish to the durable session until the broker has refused five messages.

    The message on which the broker finds the disk full may end the connection, with the reason; later ones are refused in their
    acknowledgement.
    """
    found, publisher = Filled(), connections.join("filler")
    for number in range(10_000):
        payload = b"%d " % number + KILOBYTE
        try:
            answer = publisher.publish("kept", payload, qos=qos)
        except Closed:
            disconnect = publisher.inbox[-1]
            assert (disconnect.kind, disconnect.reason >= 0x80) == (Kind.DISCONNECT, True), disconnect
            found.reason_strings.append(disconnect.one(P.REASON_STRING))
            publisher = connections.join("filler")
            continue
        assert answer is not None
        if answer.reason < 0x80:
            found.accepted.append(payload)
            continue
        found.refused.append(payload)
        found.reason_strings.append(answer.one(P.REASON_STRING))
        if len(found.refused) == 5:
            return found
    raise AssertionError("ten megabytes fitted on a disk of two")


def create_durable_session(connections: Connections) -> None:
    client = connections.join("keeper", props=LASTING)
    client.subscribe(("kept", 2))
    client.leave()


def queued_messages(connections: Connections, last: bytes) -> list[bytes]:
    """Return the messages queued for the durable session, to the last one."""
    subscriber = connections.join("keeper", clean=False, props=LASTING)
    found: list[bytes] = []
    while not found or found[-1] != last:
        message = subscriber.take(Kind.PUBLISH)
        found.append(message.payload)
        subscriber.finish(message)
    subscriber.leave()
    return found


def wait_accepted(publisher: RawClient, payload: bytes) -> None:
    """Publish until the broker accepts a message again."""
    until = time.monotonic() + RECOVERY_S
    while True:
        answer = publisher.publish("kept", payload, qos=1)
        assert answer is not None
        if answer.reason < 0x80:
            return
        assert time.monotonic() < until, "it never recovered"
        time.sleep(0.1)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_disk_refuses_durable_messages_and_recovers_without_a_restart(
    small: Broker, connect_to: ConnectTo, qos: int
) -> None:
    """3.4.2.1: with reason code and reason string; QoS 0 is still served; after a kill the accepted messages are there."""
    connections = connect_to(small)
    create_durable_session(connections)
    filled = fill(connections, qos)
    assert len(filled.accepted) > 100
    assert all(filled.reason_strings)
    publisher = connections.join("p")
    passing = connections.join("passing")
    passing.subscribe(("passing", 0))
    publisher.publish("passing", b"by")
    assert passing.message().payload == b"by"
    assert publisher.is_open()
    remount(small, "size=16m")
    wait_accepted(publisher, b"last")
    small.kill()
    small.start()
    found = queued_messages(connections, b"last")
    assert [one for one in found if one in set(filled.accepted)] == filled.accepted
    assert not set(found) & set(filled.refused)


def test_a_full_disk_sends_no_puback_in_3_1_1(small: Broker, connect_to: ConnectTo) -> None:
    """3.1.1 has no way to refuse: silence or a close, but no PUBACK for a message that is not stored."""
    connections = connect_to(small)
    create_durable_session(connections)
    fill(connections)
    old = connections.join("o", V4)
    old.send(publish("kept", KILOBYTE * 4, V4, qos=1, packet_id=1))
    try:
        found = [one.kind for one in old.drain()]
    except Closed:
        found = []
    assert Kind.PUBACK not in found


def test_a_broker_does_not_start_on_a_read_only_disk_and_logs_the_reason(small: Broker, connect_to: ConnectTo) -> None:
    """And loses nothing by it."""
    connections = connect_to(small)
    create_durable_session(connections)
    connections.join("p").publish("kept", b"last", qos=1)
    assert small.stop() == 0
    remount(small, "ro")
    with pytest.raises(pytest.fail.Exception, match="instead of starting"):
        small.start()
    small.process = None
    assert "read-only" in small.log().lower()
    remount(small, "rw")
    small.start()
    assert queued_messages(connections, b"last") == [b"last"]
