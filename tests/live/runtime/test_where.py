"""`milepost where`, `milepost topology` and `milepost log tail`: the state of sites as text and JSON."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.log import Entry, TopicSettings
from milepost.model.areas import Box
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    EndpointPosition,
    EndpointPositions,
    Epoch,
    ForwardedMessage,
    HubInfo,
    SiteRecord,
    claim_key,
    edge_key,
)
from milepost.wire.records import to_record
from milepost.wire.times import instant_to_text
from parts import ROOT

NORTH, SOUTH = EdgeRef("north", "n1"), EdgeRef("south", "s1")
CAR = EndpointId("car")
EPOCH = Epoch(1_763_280_000_000_000_000)


class Sites:
    """Two sites without processes, only with logs."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "milepost.toml"
        self._folder = folder
        self._logs = {name: EmbeddedLog(folder / name, Durability.PROCESS_CRASH) for name in ("north", "south")}
        for log in self._logs.values():
            for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
                log.make(topic, TopicSettings(is_compacted=True))
            log.make(CROSS_HUB)
        tables = [f'[[hub.sites]]\nname = "{name}"\nfolder = "{name}"' for name in self._logs]
        self.config.write_text("\n".join(tables))

    def put(self, site: str, topic: str, key: str, value: SiteRecord | bytes) -> None:
        done: list[Exception | None] = []
        data = value if isinstance(value, bytes) else to_record(value)
        self._logs[site].append([Entry(topic, key, data)], done.append)
        until = time.monotonic() + 10
        while not done:
            assert time.monotonic() < until
            time.sleep(0.002)
        assert done == [None]

    def run(self, *typed: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "milepost", *typed, "--config", str(self.config)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def close(self) -> None:
        for log in self._logs.values():
            log.close()


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    made = Sites(tmp_path)
    yield made
    made.close()


def claim(sites: Sites, edge: EdgeRef, epoch: int) -> None:
    sites.put(edge.site, VEHICLE_INFO, claim_key(CAR, edge), EndpointClaim(CAR, edge, Epoch(epoch)))


def test_where_prints_site_edge_position_and_unfinished_handovers(sites: Sites) -> None:
    claim(sites, NORTH, EPOCH)
    claim(sites, SOUTH, EPOCH + 5)
    seen = EndpointPosition(CAR, Place(51.0, 7.0), 90.0, 12.5, Instant(EPOCH + 7))
    sites.put("south", VEHICLE_INFO, "@s1", EndpointPositions(SOUTH, (seen,)))
    found = json.loads(sites.run("where", "car", "--json"))
    assert (found["site"], found["edge"]) == ("south", "s1")
    assert found["since"] == instant_to_text(Instant(EPOCH + 5))
    assert (found["place"], found["speed_mps"]) == ([51.0, 7.0], 12.5)
    assert [(one["site"], one["edge"]) for one in found["others"]] == [("north", "n1")]
    text = sites.run("where", "car")
    assert "edge      south/s1" in text
    assert "also at   north/n1" in text
    assert "epoch" not in text + json.dumps(found)


def test_an_unknown_endpoint_is_reported_with_status_1(sites: Sites) -> None:
    assert sites.run("where", "nobody", status=1) == "milepost: no site has an endpoint 'nobody'\n"


def test_topology_prints_edges_endpoints_coverage_and_the_hub_of_each_site(sites: Sites) -> None:
    claim(sites, NORTH, EPOCH)
    info = EdgeInfo(NORTH, Box(51.0, 7.0, 52.0, 8.0), address="mqtt://127.0.0.1:1883")
    sites.put("north", SUBSCRIPTION_INFO, edge_key(NORTH), info)
    soon = Instant(time.time_ns() + 60_000_000_000)  # still up when a busy machine has started the command
    sites.put("north", SUBSCRIPTION_INFO, "@@hub", HubInfo("hub-a", ("north",), soon))
    sites.put("south", SUBSCRIPTION_INFO, "@@hub", HubInfo("hub-b", ("south",), Instant(EPOCH)))
    found = json.loads(sites.run("topology", "--json"))
    assert found["north"]["edges"]["n1"]["endpoints"] == 1
    assert found["north"]["edges"]["n1"]["coverage"]["type"] == "Box"
    assert (found["north"]["hub"], found["north"]["is_hub_up"]) == ("hub-a", True)
    assert (found["south"]["hub"], found["south"]["is_hub_up"], found["south"]["lag"]) == ("hub-b", False, None)
    text = sites.run("topology")
    assert "box 51,7 to 52,8" in text
    assert "hub-b  down" in text


def test_log_tail_prints_records_as_lines_or_json_and_stops_after_count(sites: Sites) -> None:
    message = Message(MessageId(1), CAR, "fleet/a", Instant(EPOCH), body=b"hello")
    sites.put("north", CROSS_HUB, "", ForwardedMessage(NORTH, 7, message))
    sites.put("north", CROSS_HUB, "", b"\xff poison \x1b[31m")
    lines = sites.run("log", "tail", "cross-hub", "--site", "north", "--from", "beginning", "--count", "2").splitlines()
    assert "message north/n1 7  fleet/a  from car  hello" in lines[0]
    assert len(lines) == 2
    assert "\x1b" not in lines[1]
    raw = sites.run("log", "tail", CROSS_HUB, "--site", "north", "--from", "0", "--count", "1", "--json")
    assert json.loads(raw)["value"]["message"]["topic"] == "fleet/a"


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        (("cross-hub",), "--site: give one of the sites"),
        (("cross-hub", "--site", "west"), "--site: give one of the sites"),
        (("nonsense", "--site", "north"), "there is no topic 'nonsense'"),
        (("cross-hub", "--site", "north", "--from", "whenever"), "--from"),
    ],
)
def test_log_tail_reports_invalid_arguments(sites: Sites, typed: tuple[str, ...], fault: str) -> None:
    assert fault in sites.run("log", "tail", *typed, status=2)


def test_viewing_a_missing_site_creates_nothing(sites: Sites, tmp_path: Path) -> None:
    sites.config.write_text('[site]\nname = "west"\nfolder = "west"')
    assert "west" in sites.run("where", "car", status=1)
    assert not (tmp_path / "west").exists()
    sites.config.write_text("")
    assert "name no site" in sites.run("topology", status=2)
