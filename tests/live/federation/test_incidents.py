"""Incidents with real processes: cells become alerts, questions are answered, a killed incident engine is replaced (M25)."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from live.federation.deployment import Deployment, settings_table, wait_until
from milepost.client import Inbox, connect
from milepost.eventlog.log import Entry
from milepost.incidents.engine import CELLS
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.wire.incidents import cell_key, cell_to_json
from parts import ROOT
from unit.incidents.events import HOME, Event, cells_of

KIND = EventKind("Collision", "Collision", "weight >= 3 and reports >= 5", "Alert/Collision", interval_s=1.0, slots=3)
SETTINGS = """
[incidents]
allowed_lateness_s = 0.2
[[incidents.kinds]]
name = "Collision"
topic = "Collision"
alert = "Alert/Collision"
predicate = "weight >= 3 and reports >= 5"
interval_s = 1.0
slots = 3
clear_after_s = 2.0
"""


@contextmanager
def engine(deployment: Deployment, name: str) -> Iterator[subprocess.Popen[bytes]]:
    path, log = deployment.folder / f"{name}.toml", deployment.folder / f"{name}.log"
    path.write_text(f"[site]\n{settings_table(deployment.sites['north'])}\n{SETTINGS}")
    with log.open("ab") as out:
        command = [sys.executable, "-m", "milepost", "incidents", "run", "--config", str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        wait_until(lambda: "incidents ready" in log.read_text(), f"{name} is ready")
        yield process
    finally:
        process.kill()
        process.wait()


def report_collision(deployment: Deployment) -> None:
    """Append the cells that the pipeline would write for current reports."""
    found = [Event(f"car-{number}", HOME, Instant(time.time_ns())) for number in range(5)]
    deployment.log("north").append([Entry(CELLS, cell_key(cell), cell_to_json(cell)) for cell in cells_of(KIND, found)])


async def next_of(messages: Inbox, topic: str, phases: frozenset[str] = frozenset()) -> bytes:
    """Return the next message of a topic, with one of some phases; others are skipped."""
    async with asyncio.timeout(30):
        while True:
            found = await messages.receive()
            if found.topic == topic and (not phases or dict(found.properties).get("phase") in phases):
                return found.body


async def live_through(deployment: Deployment, port: int, first: "subprocess.Popen[bytes]") -> None:
    async with connect(f"mqtt://127.0.0.1:{port}", client_id="driver") as driver, driver.messages() as messages:
        await driver.report(HOME.latitude, HOME.longitude)
        warned = asyncio.ensure_future(next_of(messages, "Alert/Collision", frozenset(("early", "raised"))))
        while not warned.done():
            report_collision(deployment)
            await asyncio.wait({warned}, timeout=0.5)
        await warned
        await asyncio.sleep(1.5)  # a slot and the allowed lateness: the early warning is an incident then
        await driver.publish("Area-of-Interest", b"", qos=1)
        (kind,) = orjson.loads(await next_of(messages, "Area-of-Interest/accept"))["kinds"]
        assert len(kind["incidents"]) == 1
        await driver.publish("Area-of-Interest", b"nonsense", qos=1)
        assert orjson.loads(await next_of(messages, "Area-of-Interest/reject"))["reason"] == "PAYLOAD_NOT_JSON"
        first.kill()
        await next_of(messages, "Alert/Collision", frozenset(("cleared",)))


def test_reports_become_an_alert_and_an_all_clear_although_the_incident_engine_was_killed(own_deployment: Deployment) -> None:
    own_deployment.add_site("north")
    edge = own_deployment.add_edge("north", "n1", coverage="circle 40.7608,-111.891 5000")
    with engine(own_deployment, "first") as first, engine(own_deployment, "second"):
        asyncio.run(live_through(own_deployment, edge.tcp, first))
