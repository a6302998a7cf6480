"""Bad networks: datagrams are lost, delayed, reordered or duplicated; every reliable message arrives exactly once."""

from live.client.deadline import run
from live.udp.edges import MakeUdpEdge
from live.udp.exchanges import exchange
from live.udp.networks import MakeNetwork
from live.udp.relays import Relay

COUNT = 60
ANY_RATE = "messages_per_s = 0"


def test_with_a_fifth_lost_both_ways_every_reliable_message_arrives_exactly_once(
    make_edge: MakeUdpEdge, make_network: MakeNetwork, name: str
) -> None:
    network = make_network()
    with network.inside():
        edge = make_edge(udp=ANY_RATE)
        network.lose(200)

        async def work() -> None:
            one, other, mqtt = edge.client(f"{name}-a"), edge.client(f"{name}-b"), edge.mqtt_client(f"{name}-m")
            async with one, other, mqtt:
                await exchange(edge, name, [one, other, mqtt], COUNT)

        run(work())
        edge.kill()
    assert network.lost() > COUNT


def test_with_delays_duplicates_and_reordering_every_reliable_message_arrives_exactly_once(
    make_edge: MakeUdpEdge, name: str
) -> None:
    edge = make_edge(udp=ANY_RATE)

    async def work() -> None:
        async with Relay(edge.udp, delay_s_max=0.2, duplicate_share=0.2) as relay:
            one, other = (edge.client(f"{name}-{which}", port=relay.port) for which in "ab")
            async with one, other, edge.mqtt_client(f"{name}-m") as mqtt:
                await exchange(edge, name, [one, other, mqtt], COUNT)

    run(work())
