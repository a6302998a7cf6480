"""The broker is killed with SIGKILL in the middle of QoS 1 and 2, repeatedly, and restarted with the same data.

CRASH_ROUNDS sets how often (by default 20 times, and 80 in `make test`), CRASH_SEED the seed.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from effort import amount
from live.mqtt.brokers import Broker, ours_only
from live.mqtt.connections import ConnectTo, MakeBroker
from live.mqtt.delivery_history import Flow, History
from live.mqtt.packets import V4, V5, P
from live.mqtt.resuming_clients import Traffic
from parts import need

ROUNDS: Final = amount("CRASH_ROUNDS", fast=20, long=80, soak=200)
SEED: Final = int(os.environ.get("CRASH_SEED", "1"))
DELAY_S_MAX: Final = 0.06
LASTING: Final = [(P.SESSION_EXPIRY, 300)]

pytestmark = ours_only("Mosquitto saves now and then, not before it acknowledges")


def flows() -> dict[str, Flow]:
    return {"once": Flow(qos=1), "exactly": Flow(qos=2)}


@pytest.mark.parametrize("durability", ["process crash", "power loss"])
def test_no_accepted_message_is_lost_duplicated_or_reordered_when_the_broker_is_killed(
    make_broker: MakeBroker, capsys: pytest.CaptureFixture[str], durability: str
) -> None:
    rounds = ROUNDS if durability == "process crash" else max(ROUNDS // 20, 2)
    random, broker = Random(SEED), make_broker(durability=durability)
    history = History(flows())
    traffic = Traffic(history)
    for number in range(rounds):
        traffic.connect(broker.tcp, number)
        traffic.run_until(time.monotonic() + random.uniform(0, DELAY_S_MAX))
        broker.kill()
        traffic.drain()
        broker.start()
    traffic.connect(broker.tcp, rounds)
    traffic.finish(within_s=30)
    traffic.close()
    with capsys.disabled():
        summary = {name: f"{len(flow.accepted)} of {flow.sent} accepted" for name, flow in history.flows.items()}
        print(f"\n{rounds} kills, {durability}: {summary}", end="")
    assert history.faults() == []
    assert all(len(flow.accepted) > rounds for flow in history.flows.values()), "too little happened between the kills"


def history_of(delivered: list[int], *, qos: int = 2, accepted: int = 4, sent: int = 5) -> History:
    flow = Flow(qos, sent, dict.fromkeys(range(accepted), 0), [(number, 0) for number in delivered])
    return History({"p": flow})


def test_the_history_check_accepts_a_correct_history() -> None:
    assert history_of([0, 1, 2, 3]).faults() == []
    assert history_of([0, 1, 2, 3, 4]).faults() == []  # the last one's acceptance never reached its publisher
    assert history_of([0, 1, 2, 1, 2, 3], qos=1).faults() == []  # QoS 1 may be repeated


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        (history_of([0, 1, 3]), "p: 2 was accepted in round 0 and never delivered"),
        (history_of([0, 1, 3], qos=1), "p: 2 was accepted in round 0 and never delivered"),
        (history_of([0, 1, 2, 2, 3]), "p: 2 was delivered 2 times"),
        (history_of([0, 2, 1, 3]), "p: 1 came after 2"),
        (history_of([0, 2, 1, 2, 3], qos=1), "p: 1 came after 2"),
        (history_of([0, 1, 2, 3, 7]), "p: 7 was delivered and never sent"),
        (History({}, lost_sessions=["taker in round 3"]), "the session of taker in round 3 is gone"),
    ],
)
def test_the_history_check_finds_losses_duplicates_and_reordering(history: History, fault: str) -> None:
    assert history.faults() == [fault]


def killed(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("level", [V4, V5])
def test_acknowledged_changes_survive_a_kill(make_broker: MakeBroker, connect_to: ConnectTo, level: int) -> None:
    """Subscriptions, their end, retained messages and their removal."""
    broker = make_broker()
    connections = connect_to(broker)
    client = connections.join("a", level, clean=False, props=LASTING)
    client.subscribe(("stays", 1), ("goes", 1))
    client.unsubscribe("goes")
    client.publish("kept", b"kept", qos=1, retain=True)
    client.publish("removed", b"kept", qos=1, retain=True)
    client.publish("removed", b"", qos=1, retain=True)
    killed(broker)
    back = connections.dial(level)
    assert back.join(connections.client_id("a"), clean=False, props=LASTING).session_present
    publisher = connections.join("p", level)
    publisher.publish("goes", b"no", qos=1)
    publisher.publish("stays", b"yes", qos=1)
    assert [one.payload for one in back.drain()] == [b"yes"]
    later = connections.join("l", level)
    later.subscribe(("kept", 1), ("removed", 1))
    assert [(one.payload, one.is_retained) for one in later.drain()] == [(b"kept", True)]


@pytest.mark.parametrize("level", [V4, V5])
def test_a_session_without_durability_is_lost_after_a_kill(make_broker: MakeBroker, connect_to: ConnectTo, level: int) -> None:
    """As documented for `durability = "none"`."""
    broker = make_broker(durability="none")
    connections = connect_to(broker)
    client = connections.join("a", level, clean=False, props=LASTING)
    client.subscribe(("x", 1))
    client.leave()
    assert connections.dial(level).join(connections.client_id("a"), clean=False, props=LASTING).session_present
    killed(broker)
    assert not connections.dial(level).join(connections.client_id("a"), clean=False, props=LASTING).session_present


def test_a_session_that_expired_while_the_broker_was_down_is_not_present(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    """3.1.2.11.2: the interval continues; a message's expiry too (3.3.2.3.3)."""
    broker = make_broker()
    connections = connect_to(broker)
    for suffix, seconds in (("a", 1), ("b", 300)):
        client = connections.join(suffix, props=[(P.SESSION_EXPIRY, seconds)])
        client.subscribe(("x", 1))
        client.leave()
    publisher = connections.join("p")
    publisher.publish("x", b"short", qos=1, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish("x", b"long", qos=1, props=[(P.MESSAGE_EXPIRY, 100)])
    expired_at = time.monotonic() + 1.5
    broker.kill()
    while time.monotonic() < expired_at:
        time.sleep(0.05)
    broker.start()
    assert not connections.dial().join(connections.client_id("a"), clean=False).session_present
    back = connections.join("b", clean=False, props=LASTING)
    message = back.message()
    assert message.payload == b"long"
    assert message.number(P.MESSAGE_EXPIRY) <= 99


@contextmanager
def traced(broker: Broker, path: Path) -> Iterator[None]:
    """Write the broker's system calls that reach for the disk to a file meanwhile."""
    tracer = [
        need("strace", debian="strace"),
        "-f",
        "-e",
        "trace=fsync,fdatasync",
        "-o",
        str(path),
        "-p",
        str(broker.running.pid),
    ]
    with subprocess.Popen(tracer, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "attached" in process.stderr.readline()
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("durability", ["process crash", "power loss"])
def test_only_power_loss_durability_syncs_before_acknowledging(
    make_broker: MakeBroker, connect_to: ConnectTo, tmp_path: Path, durability: str
) -> None:
    broker = make_broker(durability=durability)
    connections = connect_to(broker)
    subscriber = connections.join("a", props=LASTING)
    subscriber.subscribe(("x", 1))
    subscriber.leave()
    publisher = connections.join("p")
    with traced(broker, tmp_path / "calls"):
        for number in range(20):
            publisher.publish("x", b"%d" % number, qos=1)
    syncs = len((tmp_path / "calls").read_text().splitlines())
    assert syncs >= 20 if durability == "power loss" else syncs <= 4
