"""`milepost demo` from its first process to its last: its guarantees hold, and no process is left behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from live.demo.conftest import Demo
from milepost.config.errors import STATUS_USAGE
from milepost_experiments.simulator.sumo import environment, program

STATUS_INTERRUPTED = 130
EDGES_ARE_READY = r"  waiting for the edges \.\.\. [\d.]+ s"
"""A step is printed when it begins, its duration when it is complete: only then has every edge logged `edge ready`."""
PROJECTION = "+proj=tmerc +lat_0=52.4 +lon_0=13.5 +ellps=WGS84"


def test_a_headless_demo_warns_exactly_the_right_vehicles_and_leaves_no_process(demos: list[Demo], tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--headless", "--seconds", "45", "--vehicles", "60")
    demos.append(demo)
    status = demo.wait()
    assert status == 0, demo.output
    assert demo.remaining() == []
    report = json.loads((demo.out / "report.json").read_text())
    assert (report["passed"], report["faults"]) == (True, [])
    assert any(one["inside_after_s"] for one in report["alerts"])
    assert (report["control"]["lost"], report["control"]["duplicated"]) == ({}, {})
    assert report["control"]["expected"] > 1_000
    assert report["counts"]["moves"] > 0
    page = (demo.out / "report.html").read_text()
    assert "Every guarantee held" in page
    assert page.count("<svg") >= 2
    assert "http://127.0.0.1:" in demo.output


def test_ctrl_c_or_a_kill_during_the_start_leaves_no_process(demos: list[Demo], tmp_path: Path) -> None:
    for number, how in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)):
        folder = tmp_path / str(number)
        folder.mkdir()
        demo = Demo(folder, "--vehicles", "20")
        demos.append(demo)
        demo.wait_until_printed("starting edges, incidents, central hub and map" if number else "starting Spark")
        time.sleep(1.0)  # some processes have started, and some have not
        assert len(demo.running()) > 2
        demo.process.send_signal(how)
        status = demo.wait()
        assert status == (-signal.SIGKILL if how is signal.SIGKILL else STATUS_INTERRUPTED), demo.output
        assert demo.remaining() == []


def test_a_process_that_dies_is_named_with_the_end_of_its_log_and_ends_the_demo(demos: list[Demo], tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--vehicles", "20")
    demos.append(demo)
    demo.wait_until_printed(EDGES_ARE_READY)
    edge = next(pid for pid, command in demo.running().items() if "north-west.toml" in command)
    os.kill(edge, signal.SIGKILL)
    assert demo.wait() == 1
    assert "north-west has ended with status -9. The end of " in demo.output
    assert "edge ready" in demo.output
    assert demo.remaining() == []


def test_a_user_scenario_runs_until_ctrl_c(demos: list[Demo], tmp_path: Path) -> None:
    config = make_scenario(tmp_path, PROJECTION)
    demo = Demo(tmp_path, "--sumo", str(config), "--vehicles", "50")
    demos.append(demo)
    demo.wait_until_printed(r"filling the roads \.\.\. [\d.]+ s\n" + EDGES_ARE_READY)
    assert demo.interrupt() == STATUS_INTERRUPTED, demo.output
    assert demo.remaining() == []


def test_a_scenario_without_projection_and_a_folder_in_use_are_refused(demos: list[Demo], tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--sumo", str(make_scenario(tmp_path, "!")))
    demos.append(demo)
    assert demo.wait() == 1
    assert "is not georeferenced" in demo.output
    assert demo.remaining() == []
    again = Demo(tmp_path)
    demos.append(again)
    assert again.wait() == STATUS_USAGE
    assert "is not empty" in again.output


def make_scenario(folder: Path, projection: str) -> Path:
    """Write a grid of streets with traffic, by SUMO's own tools."""
    net, routes, config = folder / "grid.net.xml", folder / "cars.rou.xml", folder / "grid.sumocfg"
    streets = ["--grid", "--grid.number", "5", "--grid.length", "250", "--default.lanenumber", "1", "--default.speed", "13.9"]
    subprocess.run([program("netgenerate"), *streets, "-o", str(net)], env=environment(), check=True, capture_output=True)
    net.write_text(net.read_text().replace('projParameter="!"', f'projParameter="{projection}"'))
    flows = "".join(
        f'<flow id="f{at}" begin="0" end="3600" period="4" from="{start}" to="{end}" departLane="best"/>'
        for at, (start, end) in enumerate((("A0A1", "E3E4"), ("E4D4", "A1A0"), ("A4B4", "E1E0"), ("E0D0", "A3A4")))
    )
    routes.write_text(f"<routes>{flows}</routes>")
    config.write_text(
        f'<configuration><input><net-file value="{net.name}"/><route-files value="{routes.name}"/></input></configuration>'
    )
    return config
