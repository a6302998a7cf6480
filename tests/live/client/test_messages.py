"""Publishing and receiving, against our edge and, where it can, against Mosquitto."""

import asyncio
import ssl

import pytest

from live.client.deadline import run, url_of
from live.mqtt.brokers import Broker
from live.mqtt.certificates import Certificates
from milepost.client import Inbox, OutgoingMessage, RefusedByEdge, connect
from milepost.model import SECOND_NS, Around, Circle, EndpointId, Place, Priority, ToArea, ToEndpoint, ToEveryone, tags

HERE = Place(48.1, 11.6)
NEARBY = Place(48.101, 11.6)
FAR = Place(40.7, -74.0)


@pytest.mark.parametrize("requested_qos", [0, 1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_is_received(either: Broker, name: str, qos: int, requested_qos: int) -> None:
    async def work() -> None:
        async with connect(url_of(either)) as client, client.subscribe(f"{name}/#", qos=requested_qos) as inbox:
            await client.publish(f"{name}/x", b"hello", tags=["ice"], place=HERE, qos=qos, properties=[("k", "v")])
            got = await inbox.receive()
        assert (got.topic, got.body, got.qos, got.properties) == (f"{name}/x", b"hello", min(qos, requested_qos), (("k", "v"),))
        assert (got.tags, got.place) == (tags(["ice"]), HERE)

    run(work())


def test_receivers_get_the_source_and_the_time(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker), client_id=name) as client, client.subscribe(name) as inbox:
            await client.publish(name, b"x", tags=["ice"], qos=1)
            got = await inbox.receive()
        assert got.source == name
        assert got.seen_at is not None
        assert abs(got.received_at - got.seen_at) < 10 * SECOND_NS
        assert got.message.source == name

    run(work())


def test_many_messages_arrive_in_order(either: Broker, name: str) -> None:
    async def work() -> None:
        bodies = [b"%d" % number for number in range(500)]
        async with connect(url_of(either)) as client, client.subscribe(name, qos=2) as inbox:
            sending = [asyncio.create_task(client.publish(name, body, qos=number % 2 + 1)) for number, body in enumerate(bodies)]
            got = [await inbox.receive() for _ in bodies]
            await asyncio.gather(*sending)
        for qos in (1, 2):
            assert [one.body for one in got if one.qos == qos] == bodies[qos - 1 :: 2]

    run(work())


def test_query_and_area_select_messages(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker)) as client:
            await client.report(latitude=HERE.latitude, longitude=HERE.longitude)
            async with client.subscribe(f"{name}/#", query="collision & !cleared", area=Around(2_000)) as inbox:
                for body, words, place in (
                    (b"cleared", ["collision", "cleared"], HERE),
                    (b"far", ["collision"], FAR),
                    (b"ice", ["ice"], HERE),
                    (b"wanted", ["collision"], NEARBY),
                ):
                    await client.publish(f"{name}/1", body, tags=words, place=place, qos=1)
                assert (await inbox.receive()).body == b"wanted"
                await client.report(FAR.latitude, FAR.longitude, heading_deg=90, speed_mps=10)
                await client.publish(f"{name}/1", b"left behind", tags=["collision"], place=HERE, qos=1)
                await client.publish(f"{name}/1", b"moved along", tags=["collision"], place=FAR, qos=1)
                assert (await inbox.receive()).body == b"moved along"

    run(work())


def test_a_time_window_selects_messages(broker: Broker, name: str) -> None:
    async def work() -> None:
        client = connect(url_of(broker))
        later, soon = (
            client.subscribe(name, time_window="2100-01-01T00:00:00Z/.."),
            client.subscribe(name, time_window="next 2 hours"),
        )
        async with client, later, soon:
            await client.publish(name, b"now", qos=1)
            assert (await soon.receive()).body == b"now"
            assert len(later) == 0

    run(work())


def test_two_subscriptions_to_one_filter_are_distinguished(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker)) as client:
            async with client.subscribe(name, query="ice") as ice, client.subscribe(name, query="fire", qos=2) as fire:
                await client.publish(name, b"hot", tags=["fire"], qos=2)
                await client.publish(name, b"cold", tags=["ice"], qos=1)
                await client.publish(name, b"both", tags=["ice", "fire"], qos=1)
                assert [(await fire.receive()).body for _ in range(2)] == [b"hot", b"both"]
                assert [(await ice.receive()).body for _ in range(2)] == [b"cold", b"both"]
            async with client.subscribe(name) as after:
                await client.publish(name, b"once", tags=["ice", "fire"], qos=1)
                assert (await after.receive()).body == b"once"
                assert client.counters.received == 4  # the one for both came in one packet

    run(work())


def test_a_second_subscription_to_a_filter_is_refused_by_a_server_without_the_service(mosquitto: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(mosquitto)) as client, client.subscribe(name):
            with pytest.raises(RefusedByEdge, match="NO_MILEPOST_EDGE"):
                await client.subscribe(name, query="ice").__aenter__()
            with pytest.raises(RefusedByEdge, match="NO_MILEPOST_EDGE"):
                await client.report(1, 2)

    run(work())


def test_messages_to_an_endpoint_an_area_and_everyone_need_no_subscription(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker), client_id=f"{name}-one") as one, connect(url_of(broker)) as other:
            await one.report(HERE.latitude, HERE.longitude)
            await other.publish(f"{name}/1", b"you", to=ToEndpoint(EndpointId(one.name)), qos=1)
            await other.publish(f"{name}/2", b"here", to=ToArea(Circle(NEARBY, 1_000)), qos=1)
            await other.publish(f"{name}/3", b"all", to=ToEveryone(), qos=1)
            async with one.messages() as inbox:
                assert [(await inbox.receive()).body for _ in range(3)] == [b"you", b"here", b"all"]

    run(work())


def test_within_selects_among_subscribers(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker)) as near, connect(url_of(broker)) as away:
            await near.report(HERE.latitude, HERE.longitude)
            await away.report(FAR.latitude, FAR.longitude)
            async with near.subscribe(name) as here, away.subscribe(name) as there:
                await near.publish(name, b"only here", within=Circle(HERE, 500), priority=Priority.EMERGENCY, qos=1)
                await near.publish(name, b"everywhere", qos=1)
                first = await here.receive()
                assert (first.body, first.priority) == (b"only here", Priority.EMERGENCY)
                assert (await there.receive()).body == b"everywhere"

    run(work())


def test_a_retained_message_is_marked_as_retained(either: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(either)) as client:
            await client.publish(name, b"kept", qos=1, retain=True)
            async with client.subscribe(name) as inbox:
                await client.publish(name, b"new", qos=1)
                got = [await inbox.receive() for _ in range(2)]
            await client.publish(name, b"", qos=1, retain=True)
        assert [(one.body, one.is_retained) for one in got] == [(b"kept", True), (b"new", False)]

    run(work())


def test_a_shared_subscription_delivers_each_message_to_one_member(either: Broker, name: str) -> None:
    async def work() -> None:
        one, two = connect(url_of(either)), connect(url_of(either))
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(inbox: Inbox) -> None:
            async for message in inbox:
                got.put_nowait(message.body)

        async with one, two, one.subscribe(name, share="crew") as first, two.subscribe(name, share="crew") as second:
            taking = [asyncio.create_task(take(inbox)) for inbox in (first, second)]
            for number in range(10):
                await one.publish(name, b"%d" % number, qos=1)
            bodies = [await got.get() for _ in range(10)]
        await asyncio.gather(*taking)
        assert sorted(bodies) == [b"%d" % number for number in range(10)]

    run(work())


def test_a_will_is_published_after_a_lost_connection_but_not_after_disconnect(either: Broker, name: str) -> None:
    async def work() -> None:
        will = OutgoingMessage(name, b"gone", tags(["lost"]), qos=1)
        async with connect(url_of(either)) as client, client.subscribe(name) as inbox:
            async with connect(url_of(either), client_id=f"{name}-a", will=will):
                pass
            cut_off = connect(url_of(either), client_id=f"{name}-b", will=will)
            async with cut_off, connect(url_of(either), client_id=f"{name}-b", clean_start=True):
                got = await inbox.receive()
            assert (got.body, got.tags) == (b"gone", tags(["lost"]))
            assert len(inbox) == 0

    run(work())


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
def test_every_transport_carries_large_and_small_messages(
    broker: Broker, certificates: Certificates, name: str, scheme: str
) -> None:
    port = {"mqtt": broker.tcp, "mqtts": broker.tls, "ws": broker.ws, "wss": broker.wss}[scheme]
    tls = ssl.create_default_context(cafile=str(certificates.ca)) if scheme in ("mqtts", "wss") else None

    async def work() -> None:
        async with connect(f"{scheme}://localhost:{port}", tls=tls) as client, client.subscribe(name, qos=2) as inbox:
            for body in (b"", b"x", b"y" * 1_500_000):
                await client.publish(name, body, qos=2)
                assert (await inbox.receive()).body == body

    run(work())


def test_a_certificate_of_an_unknown_authority_is_not_trusted(broker: Broker) -> None:
    async def work() -> None:
        with pytest.raises(Exception, match="certificate"):
            await connect(f"mqtts://localhost:{broker.tls}", connect_within_s=0).open()

    run(work())


def test_a_client_named_by_the_edge_receives_messages(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker)) as client, connect(url_of(broker)) as other:
            assert client.name != other.name
            async with other.messages() as inbox:
                await client.publish(name, to=ToEndpoint(EndpointId(other.name)), qos=1)
                assert (await inbox.receive()).topic == name

    run(work())
