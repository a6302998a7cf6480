"""A first client: a truck subscribes to collisions around it, a car publishes one. `python examples/first_client.py [URL]`.

Without a URL it starts its own edge, and stops it at the end. Another edge needs the access rule below.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.client import RefusedByEdge, connect
from milepost.model import Around, Circle, Place, Priority, ToArea

RULE = '[[access.rules]]\nallow = true\naction = "send"\ntopics = "warnings"\npriority = "emergency"\n'
"""Anonymous clients need a rule to address an area, as does the class emergency."""

TRUCK, CRASH, NEW_YORK = Place(40.75, -111.99), Place(40.765, -111.95), Place(40.7, -74.0)


async def main(url: str) -> None:
    async with connect(url, client_id="truck-7") as truck, connect(url, client_id="car-4711") as car:
        await truck.report(TRUCK.latitude, TRUCK.longitude, heading_deg=63, speed_mps=24.6)
        async with truck.subscribe("road/#", query="collision & !cleared", area=Around(5_000)) as hazards:
            print("truck-7 subscribes to collisions within 5 km of itself")
            await car.publish("road/i80", b"in New York", tags={"collision"}, place=NEW_YORK, qos=1)
            await car.publish("road/i80", b"cleared", tags={"collision", "cleared"}, place=CRASH, qos=1)
            await car.publish("road/i80", b"lane 2 is blocked", tags={"collision", "i80"}, place=CRASH, qos=1)
            message = await hazards.receive()
            print(f"truck-7 receives: {message.topic} {sorted(message.tags)} {message.body.decode()}")

        async with truck.messages() as everything:
            slow_down = ToArea(Circle(CRASH, 10_000))
            await car.publish("warnings", b"slow down", to=slow_down, priority=Priority.EMERGENCY, valid_for_s=60, qos=1)
            message = await everything.receive()
            print(f"truck-7 is warned without a subscription: {message.body.decode()}, {message.priority.name.lower()}")

        try:
            await car.publish("$SYS/not-ours", b"", qos=1)
        except RefusedByEdge as refused:
            print(f"car-4711 is refused: {refused}")


@contextmanager
def running_edge() -> Iterator[str]:
    """Run an edge on a free port, without storage; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = f'[storage]\ndurability = "none"\n[http]\naddress = ""\n[[mqtt.listen]]\naddress = "127.0.0.1:{port}"\n'
        Path(folder, "edge.toml").write_text(settings + RULE)
        command = [sys.executable, "-m", "milepost", "edge", "run", "--config", f"{folder}/edge.toml"]
        edge = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            yield f"mqtt://127.0.0.1:{port}"  # the client retries until the edge is ready
        finally:
            edge.terminate()
            edge.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with running_edge() as edge_url:
            asyncio.run(main(edge_url))
