"""A vehicle over UDP: it authenticates with a certificate, drives, and receives a warning. `python examples/vehicle.py`.

The example creates its own certificate authority and starts its own edge, both in a temporary folder.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.client import Client, Credentials, connect
from milepost.model import Circle, Place, Priority, ToArea
from milepost.model.places import moved

START = Place(40.75, -111.99)
CRASH = moved(START, 90.0, 300.0)
SPEED_MPS, STEP_S = 25.0, 0.2


async def main(url: str, folder: Path) -> None:
    def credentials(name: str) -> Credentials:
        return Credentials.from_files(
            ca=folder / "ca" / "authority.pub", certificate=folder / f"{name}.cert", key=folder / f"{name}.key"
        )

    async with (
        connect(url, place=START, credentials=credentials("truck-7")) as truck,
        connect(url, place=CRASH, credentials=credentials("car-1")) as car,
    ):
        print(f"{truck.name} and {car.name} are connected, encrypted")
        driving = asyncio.create_task(drive(truck))
        async with truck.messages() as everything:
            while not everything:  # repeated, so that vehicles that enter the area later are warned too
                near = ToArea(Circle(CRASH, 250.0))
                await car.publish("warnings", b"slow down", to=near, priority=Priority.EMERGENCY, valid_for_s=60, qos=1)
                await asyncio.sleep(STEP_S)
            message = await everything.receive()
        driving.cancel()
        print(f"{truck.name} receives from {message.source}: {message.body.decode()}, {message.priority.name.lower()}")


async def drive(truck: Client) -> None:
    """Drive east at 90 km/h, with five reports per second."""
    driven_m = 0.0
    while True:
        place = moved(START, 90.0, driven_m)
        await truck.report(place.latitude, place.longitude, heading_deg=90.0, speed_mps=SPEED_MPS)
        await asyncio.sleep(STEP_S)
        driven_m += SPEED_MPS * STEP_S


@contextmanager
def running_edge(folder: Path) -> Iterator[str]:
    """Create a certificate authority and certificates, and run an edge on a free port, without storage; yield its URL."""
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
        f'[edge]\nname = "edge-1"\n[storage]\ndurability = "none"\n[http]\naddress = ""\n[udp]\naddress = "127.0.0.1:{port}"\n'
    )
    settings += '[trust]\nca = "ca/authority.pub"\ncertificate = "edge-1.cert"\nkey = "edge-1.key"\nrevoked = "ca/revoked.list"\n'
    settings += '[[access.rules]]\nallow = true\naction = "send"\ntopics = "warnings"\nrole = "vehicle"\n'
    settings += 'priority = "emergency"\nradius_m = 1000\n'
    (folder / "edge.toml").write_text(f'{settings}[[mqtt.listen]]\naddress = "127.0.0.1:{mqtt_port}"\n')
    edge = subprocess.Popen([*milepost, "edge", "run", "--config", "edge.toml"], stderr=subprocess.DEVNULL, cwd=folder)
    try:
        yield f"udp://127.0.0.1:{port}"  # the client retries until the edge is ready
    finally:
        edge.terminate()
        edge.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running_edge(Path(folder)) as edge_url:
        asyncio.run(main(edge_url, Path(folder)))
