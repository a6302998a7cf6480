"""A vehicle over UDP: it shows its certificate, drives, and is warned when it comes near. `python examples/vehicle.py`.

The example is its own authority and starts an edge of its own, both in a folder that is gone at the end.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.client import Edge, Trust, connect
from milepost.model import Circle, Place, Priority, ToArea
from milepost.model.places import moved

START = Place(40.75, -111.99)
CRASH = moved(START, 90.0, 300.0)
SPEED_MPS, STEP_S = 25.0, 0.2


async def main(url: str, folder: Path) -> None:
    def trust(name: str) -> Trust:
        return Trust.from_files(
            authority=folder / "ca" / "authority.pub", certificate=folder / f"{name}.cert", key=folder / f"{name}.key"
        )

    async with connect(url, place=START, trust=trust("truck-7")) as truck, connect(url, place=CRASH, trust=trust("car-1")) as car:
        print(f"{truck.name} and {car.name} are connected, sealed")
        driving = asyncio.create_task(drive(truck))
        async with truck.messages() as everything:
            while not everything:  # said again and again: who comes later is warned, too
                near = ToArea(Circle(CRASH, 250.0))
                await car.publish("warnings", b"slow down", to=near, priority=Priority.EMERGENCY, valid_for_s=60, qos=1)
                await asyncio.sleep(STEP_S)
            message = await everything.receive()
        driving.cancel()
        print(f"{truck.name} hears from {message.source}: {message.body.decode()}, {message.priority.name.lower()}")


async def drive(truck: Edge) -> None:
    """East at 90 km/h, five reports a second."""
    driven_m = 0.0
    while True:
        place = moved(START, 90.0, driven_m)
        await truck.report(place.latitude, place.longitude, heading_deg=90.0, speed_mps=SPEED_MPS)
        await asyncio.sleep(STEP_S)
        driven_m += SPEED_MPS * STEP_S


@contextmanager
def an_edge(folder: Path) -> Iterator[str]:
    """An authority, certificates, and an edge on a free port that keeps nothing."""
    milepost = [sys.executable, "-m", "milepost"]
    subprocess.run([*milepost, "trust", "init", "ca"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    for name, role in (("edge-1", "edge"), ("truck-7", "vehicle"), ("car-1", "vehicle")):
        subprocess.run(
            [*milepost, "trust", "issue", "ca", name, "--role", role], check=True, cwd=folder, stdout=subprocess.DEVNULL
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.create_server(("127.0.0.1", 0)) as tcp:
        udp.bind(("127.0.0.1", 0))
        port, mqtt_port = udp.getsockname()[1], tcp.getsockname()[1]
    settings = (
        f'[edge]\nname = "edge-1"\n[storage]\ndurability = "nothing"\n[http]\naddress = ""\n[udp]\naddress = "127.0.0.1:{port}"\n'
    )
    settings += (
        '[trust]\nauthority = "ca/authority.pub"\ncertificate = "edge-1.cert"\nkey = "edge-1.key"\nrevoked = "ca/revoked.list"\n'
    )
    (folder / "edge.toml").write_text(f'{settings}[[mqtt.listen]]\naddress = "127.0.0.1:{mqtt_port}"\n')
    edge = subprocess.Popen([*milepost, "edge", "run", "--config", "edge.toml"], stderr=subprocess.DEVNULL, cwd=folder)
    try:
        yield f"udp://127.0.0.1:{port}"  # the client tries until the edge is there
    finally:
        edge.terminate()
        edge.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, an_edge(Path(made)) as found:
        asyncio.run(main(found, Path(made)))
