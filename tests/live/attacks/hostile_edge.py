"""A hostile MQTT server between clients and the edges they trust: it sends its clients whatever packets it likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from milepost.wire.mqtt import (
    Code,
    Connack,
    Connect,
    Packet,
    Ping,
    Pong,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    decode,
    encode,
    frame_at,
)

PACKET_BYTES_MAX = 1_000_000


def _answer_to(packet: Packet) -> Packet | None:
    match packet:
        case Connect():
            return Connack(False)
        case Subscribe():
            return Suback(packet.packet_id, tuple(Code.SUCCESS for _ in packet.requests))
        case Unsubscribe():
            return Unsuback(packet.packet_id, tuple(Code.SUCCESS for _ in packet.filters))
        case Ping():
            return Pong()
        case _:
            return None


@asynccontextmanager
async def hostile_edge(packets: list[Publish]) -> AsyncIterator[str]:
    """Serve the URL of a server that sends *packets*, at QoS 0, after the second subscription of a client."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data, subscriptions = b"", 0
        while received := await reader.read(65_536):
            data += received
            while (frame := frame_at(data, 0, PACKET_BYTES_MAX)) is not None:
                packet = decode(data[0], data[frame[0] : frame[1]], Version.V5)
                data = data[frame[1] :]
                if (answer := _answer_to(packet)) is not None:
                    writer.write(encode(answer, Version.V5))
                subscriptions += isinstance(packet, Subscribe)
                if subscriptions == 2 and isinstance(packet, Subscribe):
                    writer.writelines(encode(one, Version.V5) for one in packets)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
