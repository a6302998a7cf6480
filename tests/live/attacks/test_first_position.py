"""A first position counts for receiving at once, for rights only after a plausible history."""

import time
from pathlib import Path

from live.attacks.strangers import refusal, running_edge
from live.attacks.test_backdating import NEAR, publish_here
from live.client.deadline import run
from live.udp.edges import HERE, UdpEdge
from milepost.client import Client, connect
from milepost.model import SECOND_NS, Circle, Instant, ToArea


def kept_client(edge: UdpEdge) -> Client:
    return connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id="kept", session_expiry_s=600)


def test_a_first_position_gives_no_rights_there(tmp_path: Path) -> None:
    async def attack(edge: UdpEdge) -> None:
        async with edge.mqtt_client("rogue") as rogue, edge.client("witness") as witness, rogue.messages() as got:
            a_while_ago = Instant(time.time_ns() - 50 * SECOND_NS)
            await rogue.report(HERE.latitude, HERE.longitude, seen_at=a_while_ago)
            await rogue.report(HERE.latitude, HERE.longitude)
            for place in (HERE, None):  # stated, or filled in by the edge
                assert await refusal(rogue.publish("Collision", b"false", place=place, qos=1)) == "POSITION_TOO_NEW"
            await witness.publish("Emergency", b"rocks", place=HERE, qos=1)
            assert (await got.receive()).topic == "Alert", "for receiving it counts at once"
            await publish_here(rogue)

    with running_edge(tmp_path, NEAR) as edge:
        run(attack(edge))


def test_a_first_position_of_a_vehicle_is_not_enough_to_address_the_area_around_it(tmp_path: Path) -> None:
    async def attack(edge: UdpEdge) -> None:
        async with edge.client("rogue") as rogue:
            near = ToArea(Circle(HERE, 100.0))
            assert await refusal(rogue.publish("chat", b"false", to=near, valid_for_s=60, qos=1)) == "POSITION_TOO_NEW"

    with running_edge(tmp_path) as edge:
        run(attack(edge))


def test_a_position_from_before_a_restart_gives_no_rights(tmp_path: Path) -> None:
    async def before(edge: UdpEdge) -> None:
        async with kept_client(edge) as client:
            await publish_here(client)

    async def after(edge: UdpEdge) -> None:
        async with kept_client(edge) as client:
            assert await refusal(client.publish("Collision", b"false", qos=1)) == "POSITION_TOO_NEW"
            await publish_here(client)

    with running_edge(tmp_path, NEAR) as edge:
        run(before(edge))
        edge.stop()
        edge.start()
        run(after(edge))
