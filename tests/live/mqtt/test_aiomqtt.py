"""Foreign clients: aiomqtt, over TCP, TLS and WebSocket."""

import asyncio
import ssl
from typing import Any

import pytest
from aiomqtt import Client, MqttError, ProtocolVersion, TLSParameters
from paho.mqtt.packettypes import PacketTypes

from live.mqtt.brokers import Broker
from live.mqtt.certificates import Certificates
from live.mqtt.packets import V4, V5
from live.mqtt.paho_client import props

WAIT_S = 10.0
BOTH = pytest.mark.parametrize("level", [V4, V5])
PROTOCOLS = {V4: ProtocolVersion.V311, V5: ProtocolVersion.V5}


def client_of(port: int, level: int, name: str, **options: Any) -> Client:
    return Client("127.0.0.1", port, identifier=name, protocol=PROTOCOLS[level], timeout=WAIT_S, **options)


async def payloads(client: Client, count: int) -> list[object]:
    found: list[object] = []
    async with asyncio.timeout(WAIT_S):
        async for message in client.messages:
            found.append(message.payload)
            if len(found) == count:
                break
    return found


@BOTH
@pytest.mark.parametrize("transport", ["tcp", "tls", "ws", "wss"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_through_every_transport(
    broker: Broker, certificates: Certificates, name: str, level: int, transport: str, qos: int
) -> None:
    options: dict[str, Any] = {}
    if transport in ("tls", "wss"):
        options["tls_params"] = TLSParameters(ca_certs=str(certificates.ca), cert_reqs=ssl.CERT_REQUIRED)
    if transport in ("ws", "wss"):
        options |= {"transport": "websockets", "websocket_path": "/mqtt"}

    async def exchange() -> list[object]:
        async with (
            client_of(getattr(broker, transport), level, f"{name}t", **options) as subscriber,
            client_of(broker.tcp, level, f"{name}p") as publisher,
        ):
            await subscriber.subscribe(f"{name}/+", qos)
            for number in range(20):
                await publisher.publish(f"{name}/{number}", f"{number}", qos)
            await publisher.publish(f"{name}/large", b"\x00" * 20_000, qos)
            return await payloads(subscriber, 21)

    assert asyncio.run(exchange()) == [*(b"%d" % number for number in range(20)), b"\x00" * 20_000]


@BOTH
def test_many_clients_in_one_loop_all_receive_from_one_publisher(broker: Broker, name: str, level: int) -> None:
    async def receive(number: int, is_ready: asyncio.Semaphore) -> list[object]:
        async with client_of(broker.tcp, level, f"{name}t{number}") as subscriber:
            await subscriber.subscribe(f"{name}/#", 1)
            is_ready.release()
            return await payloads(subscriber, 50)

    async def exchange() -> list[list[object]]:
        is_ready = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as tasks, client_of(broker.tcp, level, f"{name}p") as publisher:
            subscribers = [tasks.create_task(receive(number, is_ready)) for number in range(30)]
            for _ in subscribers:
                await is_ready.acquire()
            for number in range(50):
                await publisher.publish(f"{name}/x", f"{number}", 1)
            return [await one for one in subscribers]

    assert asyncio.run(exchange()) == [[b"%d" % number for number in range(50)]] * 30


@BOTH
def test_a_session_is_resumed(broker: Broker, name: str, level: int) -> None:
    lasting: dict[str, Any] = {"clean_session": False}
    if level == V5:
        lasting = {"clean_start": False, "properties": props(PacketTypes.CONNECT, SessionExpiryInterval=300)}

    async def exchange() -> list[object]:
        async with client_of(broker.tcp, level, f"{name}t", **lasting) as subscriber:
            await subscriber.subscribe(name, 1)
        async with client_of(broker.tcp, level, f"{name}p") as publisher:
            await publisher.publish(name, b"waited", 1)
        async with client_of(broker.tcp, level, f"{name}t", **lasting) as subscriber:
            return await payloads(subscriber, 1)

    assert asyncio.run(exchange()) == [b"waited"]


def test_the_same_name_twice_ends_the_first_client(broker: Broker, name: str) -> None:
    async def exchange() -> None:
        async with client_of(broker.tcp, V5, name) as old, client_of(broker.tcp, V5, name):
            await payloads(old, 1)

    with pytest.raises(MqttError):
        asyncio.run(exchange())
