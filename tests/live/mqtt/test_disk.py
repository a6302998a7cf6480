"""The disk below the broker is full, or can only be read: it says so, goes on with what needs no disk, and recovers by itself.

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
from live.mqtt.packets import V4, Kind, P, Value, publish
from live.mqtt.raw import Closed, Raw
from live.mqtt.visitors import Visit, Visitors
from parts import need

LASTING = [(P.SESSION_EXPIRY, 300)]
KILOBYTE = b"." * 1000
RECOVERY_S = 15.0

pytestmark = ours_only("Mosquitto acknowledges before it saves")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose data are on a disk of two megabytes, in memory."""
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
    """What became of the messages that filled the disk."""

    accepted: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    words: list[Value | None] = field(default_factory=list)
    """What refusals said."""


def fill(visitors: Visitors, qos: int = 1) -> Filled:
    """Publish to the kept session until the broker has refused five messages.

    The message on which the broker finds the disk full may end the connection, with the reason; later ones are refused in their
    acknowledgement.
    """
    found, publisher = Filled(), visitors.join("filler")
    for number in range(10_000):
        payload = b"%d " % number + KILOBYTE
        try:
            answer = publisher.publish("kept", payload, qos=qos)
        except Closed:
            farewell = publisher.inbox[-1]
            assert (farewell.kind, farewell.reason >= 0x80) == (Kind.DISCONNECT, True), farewell
            found.words.append(farewell.one(P.REASON_STRING))
            publisher = visitors.join("filler")
            continue
        assert answer is not None
        if answer.reason < 0x80:
            found.accepted.append(payload)
            continue
        found.refused.append(payload)
        found.words.append(answer.one(P.REASON_STRING))
        if len(found.refused) == 5:
            return found
    raise AssertionError("ten megabytes fitted on a disk of two")


def keep_session(visitors: Visitors) -> None:
    client = visitors.join("keeper", props=LASTING)
    client.subscribe(("kept", 2))
    client.leave()


def taken(visitors: Visitors, last: bytes) -> list[bytes]:
    """What waits for the kept session, to the last message."""
    keeper = visitors.join("keeper", clean=False, props=LASTING)
    found: list[bytes] = []
    while not found or found[-1] != last:
        message = keeper.take(Kind.PUBLISH)
        found.append(message.payload)
        keeper.finish(message)
    keeper.leave()
    return found


def wait_accepted(publisher: Raw, payload: bytes) -> None:
    """Until the broker takes a message again."""
    until = time.monotonic() + RECOVERY_S
    while True:
        answer = publisher.publish("kept", payload, qos=1)
        assert answer is not None
        if answer.reason < 0x80:
            return
        assert time.monotonic() < until, "it never recovered"
        time.sleep(0.1)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_disk_refuses_what_must_be_kept_and_recovers_without_a_restart(small: Broker, visit: Visit, qos: int) -> None:
    """3.4.2.1: with a reason and its words; QoS 0 goes on; after a kill exactly what was accepted is there."""
    visitors = visit(small)
    keep_session(visitors)
    filled = fill(visitors, qos)
    assert len(filled.accepted) > 100
    assert all(filled.words)
    publisher = visitors.join("p")
    passing = visitors.join("passing")
    passing.subscribe(("passing", 0))
    publisher.publish("passing", b"by")
    assert passing.message().payload == b"by"
    assert publisher.is_open()
    remount(small, "size=16m")
    wait_accepted(publisher, b"last")
    small.kill()
    small.start()
    found = taken(visitors, b"last")
    assert [one for one in found if one in set(filled.accepted)] == filled.accepted
    assert not set(found) & set(filled.refused)


def test_a_full_disk_gives_no_acknowledgement_in_3_1_1(small: Broker, visit: Visit) -> None:
    """3.1.1 has no way to refuse: silence or a close, but no PUBACK for what is not kept."""
    visitors = visit(small)
    keep_session(visitors)
    fill(visitors)
    old = visitors.join("o", V4)
    old.send(publish("kept", KILOBYTE * 4, V4, qos=1, packet_id=1))
    try:
        found = [one.kind for one in old.settle()]
    except Closed:
        found = []
    assert Kind.PUBACK not in found


def test_a_broker_does_not_start_on_a_disk_that_can_only_be_read_and_says_why(small: Broker, visit: Visit) -> None:
    """And loses nothing by it."""
    visitors = visit(small)
    keep_session(visitors)
    visitors.join("p").publish("kept", b"last", qos=1)
    assert small.stop() == 0
    remount(small, "ro")
    with pytest.raises(pytest.fail.Exception, match="instead of starting"):
        small.start()
    small.process = None
    assert "read-only" in small.log().lower()
    remount(small, "rw")
    small.start()
    assert taken(visitors, b"last") == [b"last"]
