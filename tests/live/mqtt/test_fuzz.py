"""Robustness: a million mutated packets over the wire.

FUZZ_PACKETS sets the number (by default 20,000, and 500,000 in `make test-long`), FUZZ_SEED the seed.
"""

import os
import time
from random import Random
from typing import Final

import pytest

from effort import amount
from live.mqtt.connections import ConnectTo, MakeBroker
from live.mqtt.fuzz_driver import CANARY_EVERY, Driver
from live.mqtt.packets import V5, Kind

PACKETS: Final = amount("FUZZ_PACKETS", fast=20_000, long=500_000, soak=5_000_000)
SEED: Final = int(os.environ.get("FUZZ_SEED", "1"))
MEMORY_BYTES_MAX: Final = 600_000_000


def test_the_broker_answers_or_closes_on_any_input_and_keeps_serving(
    make_broker: MakeBroker, connect_to: ConnectTo, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker closes every connection, serves the valid one in a hundred, and logs no exception."""
    broker = make_broker()
    started_at = time.monotonic()
    outcome = Driver(broker.tcp, Random(SEED)).run(PACKETS)
    seconds = time.monotonic() - started_at
    with capsys.disabled():
        print(f"\n{outcome.packets:,} packets, {outcome.connections:,} connections, {seconds:.0f} s: {dict(outcome.ends)}")
        print(f"answers: {dict(outcome.answers)}; {broker.resident_bytes() >> 20} MB", end="")
    assert broker.is_alive()
    assert broker.faults() == []
    assert outcome.answers[Kind.CONNACK.name] > outcome.connections // 2
    assert outcome.connections > CANARY_EVERY
    assert broker.resident_bytes() < MEMORY_BYTES_MAX
    client = connect_to(broker).join("after", V5)
    client.subscribe(("after", 2))
    client.publish("after", b"well", qos=2)
    assert client.message().payload == b"well"
