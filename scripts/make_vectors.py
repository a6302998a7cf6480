"""Write the test vectors of the wire, for clients in any language: `python scripts/make_vectors.py`.

`tests/vectors/datagrams.json` has three lists: datagrams with their value in JSON, refused datagrams with the reason, and refused
JSON texts with the reason. Where `times` is given, the bytes are repeated that many times. A client that agrees with all of them
implements the protocol of `docs/reference/wire.md`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Stretch, Union, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import MESSAGE_BYTES_MAX, Message, MessageId
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    CloseCause,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Notify,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
    refusal_of,
)
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.model.tags import tags
from milepost.model.time_windows import TimeWindow
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams import decode, encode
from milepost.wire.json_form import from_json, to_json

VECTORS: Final = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "datagrams.json"

NOON: Final = Instant(1_893_499_200 * SECOND_NS)  # 2030-01-01T12:00:00Z
TOKEN: Final = SessionToken(0x1122334455667788)
TRUCK: Final = EndpointId("truck-7")
HERE: Final = Place(40.7608, -111.891)
RING: Final = (Place(40.7, -112.0), Place(40.7, -111.8), Place(40.9, -111.8), Place(40.9, -112.0), Place(40.7, -112.0))
HOLE: Final = (Place(40.78, -111.92), Place(40.78, -111.88), Place(40.82, -111.9), Place(40.78, -111.92))
CIRCLE: Final = Circle(HERE, 500.0)
ROUTE: Final = Corridor((HERE, Place(40.78, -111.9), Place(40.8, -111.85)), 50.0)
REPORT: Final = Report(TRUCK, HERE, NOON, 271.5, 24.6)
MESSAGE: Final = Message(MessageId(1), TRUCK, "Collision", NOON)
EVERYTHING: Final = Message(
    id=MessageId(2**64 - 1),
    source=TRUCK,
    topic="city/Köln/parking",
    seen_at=NOON,
    tags=tags(["i80", "east", "später"]),
    address=ToArea(CIRCLE),
    place=HERE,
    valid_until=Instant(NOON + 600 * SECOND_NS + 1),
    priority=Priority.EMERGENCY,
    reliable=True,
    fields={"truth": True, "text": "ü", "small": -3, "large": 2**63 - 1, "number": 1.0, "raw": b"\x00\xff"},
    body=b"\x01\x02\x03",
)


def accepted() -> dict[str, Datagram]:
    """Return values by name: every type of message, every shape, every kind of address, and the ends of ranges."""
    return sessions() | publications() | subscriptions()


def sessions() -> dict[str, Datagram]:
    """INIT to CLOSE, and refusals."""
    at_zero = Report(EndpointId("zéro"), Place(0.0, -0.0), Instant(0), 0.0, 0.0)
    return {
        "init": Init(REPORT),
        "init, all zeros": Init(at_zero),
        "init that continues a session": Init(REPORT, TOKEN, joins_multicast=True),
        "acknowledge": AcknowledgeDatagram(TOKEN, SECOND_NS, EndpointId("edge-west")),
        "acknowledge of a resumed sealed session": AcknowledgeDatagram(
            TOKEN, SECOND_NS, EndpointId("edge-west"), True, bytes(range(16)), 3_600 * SECOND_NS
        ),
        "acknowledge with multicast": AcknowledgeDatagram(
            TOKEN, SECOND_NS, EndpointId("edge-west"), cells=MulticastGrid("239.192.0.0", 256, 4242, 0.01)
        ),
        "report": ReportSent(TOKEN, REPORT),
        "report, heading and speed unknown": ReportSent(TOKEN, Report(TRUCK, HERE, NOON)),
        "report, largest token and last instant": ReportSent(SessionToken(2**64 - 1), Report(TRUCK, HERE, Instant(2**63 - 2))),
        "heartbeat": Heartbeat(TOKEN),
        "close": Close(TOKEN),
        "close, silent": Close(TOKEN, CloseCause.SILENT),
        "refusal of a session": refusal_of(Refused(Reason.SESSION_UNKNOWN), session=TOKEN),
        "refusal of a message": refusal_of(
            Refused(Reason.TOPIC_CHARACTER, "'+' in the topic 'a/+'"), MessageName(TRUCK, MessageId(1)), TOKEN
        ),
        "refusal of a subscription, without a session": refusal_of(
            Refused(Reason.SUBSCRIPTIONS_FULL), SubscriptionName(TRUCK, SubscriptionId(4))
        ),
        "refusal for a reason of a later version": Refusal(65_000, "NOT_YET_KNOWN", "", None, TOKEN),
    }


def publications() -> dict[str, Datagram]:
    """Messages, their acknowledgement and notices of them."""
    shapes: dict[str, Area] = {
        "circle": CIRCLE,
        "box across the antimeridian": Box(-20.0, 170.0, -10.0, -170.0),
        "polygon": Polygon(RING),
    }
    more_shapes: dict[str, Area] = {
        "polygon with a hole": Polygon(RING, (HOLE,)),
        "corridor": ROUTE,
        "upstream": Upstream.of(
            (
                Stretch((HERE, Place(40.7608, -111.8872), Place(40.7632, -111.8871)), 18.2, 61.3, 19.5, 840.1, 250.0),
                Stretch((Place(40.7632, -111.8871), Place(40.7655, -111.887)), 16.6, 19.5, 0.0, 250.0, 0.0),
            )
        ),
        "union": Union((CIRCLE, Union((ROUTE, Box(40.0, -112.0, 41.0, -111.0))))),
    }
    addresses: dict[str, Address] = {
        "an endpoint": ToEndpoint(EndpointId("edge-west")),
        "everyone": ToEveryone(),
        "content within an area": ToContent(CIRCLE),
    }
    notice = Notice(SubscriptionId(4), MessageId(1), TRUCK, "Collision", tags(["i80"]), HERE, NOON, b"2 cars")
    return {
        "publish, all defaults, no session": PublishDatagram(MESSAGE),
        "publish, no defaults": PublishDatagram(EVERYTHING, TOKEN, (SubscriptionId(0), SubscriptionId(2**32 - 1))),
        **{
            f"publish to {name}": PublishDatagram(Message(MessageId(1), TRUCK, "Collision", NOON, address=address), TOKEN)
            for name, address in addresses.items()
        },
        **{
            f"publish to the area of a {name}": PublishDatagram(
                Message(MessageId(1), TRUCK, "Collision", NOON, address=ToArea(area)), TOKEN
            )
            for name, area in (shapes | more_shapes).items()
        },
        "received, a message": ReceivedDatagram(MessageName(TRUCK, MessageId(1)), TOKEN),
        "received, a subscription": ReceivedDatagram(SubscriptionName(TRUCK, SubscriptionId(4)), TOKEN),
        "notice": Notify(notice, TOKEN),
        "notice without place and tags": Notify(
            Notice(SubscriptionId(0), MessageId(1), TRUCK, "Blocked", frozenset(), None, NOON), TOKEN
        ),
    }


def subscriptions() -> dict[str, Datagram]:
    """Subscriptions and their end."""
    query = parse_query('collision & (i80 | i15) & !topic:"city/old town/#"')
    return {
        "subscribe, all defaults": SubscribeDatagram(Subscription(TRUCK, parse_query("collision")), TOKEN),
        "subscribe, no defaults": SubscribeDatagram(
            Subscription(
                TRUCK, query, CIRCLE, TimeWindow(NOON, Instant(NOON + SECOND_NS)), SubscriptionId(2**32 - 1), 2, "group"
            ),
            TOKEN,
        ),
        "subscribe around the owner, open into the past": SubscribeDatagram(
            Subscription(TRUCK, parse_query("collision"), Around(250.0), TimeWindow(end=NOON), qos=0), TOKEN
        ),
        "subscribe, open into the future": SubscribeDatagram(
            Subscription(TRUCK, parse_query("a"), time_window=TimeWindow(start=NOON)), TOKEN
        ),
        "unsubscribe": UnsubscribeDatagram(SubscriptionName(TRUCK, SubscriptionId(4)), TOKEN),
    }


def refused_datagrams() -> dict[str, bytes]:
    """Return datagrams by name that must be refused."""
    report = encode(ReportSent(TOKEN, REPORT))
    return {
        "no bytes": b"",
        "not protobuf": b"\xff\xff\xff",
        "truncated": report[:-1],
        "version 2": _changed(report, lambda part: setattr(part, "version", 2)),
        "no version": _changed(report, lambda part: part.ClearField("version")),
        "no content": _changed(report, lambda part: part.ClearField("report")),
        "no session token": _changed(report, lambda part: part.ClearField("session")),
        "no latitude": _changed(report, lambda part: part.report.ClearField("latitude")),
        "latitude not a number": _changed(report, lambda part: setattr(part.report, "latitude", float("nan"))),
        "longitude 180.5": _changed(report, lambda part: setattr(part.report, "longitude", 180.5)),
        "seen_at with the number of forever": _changed(report, lambda part: setattr(part.report, "seen_at", 2**63 - 1)),
        "heading 360": _changed(report, lambda part: setattr(part.report, "heading_deg", 360.0)),
        "speed 501 m/s": _changed(report, lambda part: setattr(part.report, "speed_mps", 501.0)),
        "endpoint with a line break": _changed(report, lambda part: setattr(part.report, "endpoint", "a\nb")),
        "text that is not UTF-8": report.replace(TRUCK.encode(), b"truck-\xff"),
        "a session token before the session": _changed(encode(Init(REPORT)), lambda part: setattr(part, "session", 5)),
        "close for an unknown cause": _changed(encode(Close(TOKEN)), lambda part: setattr(part.close, "cause", 99)),
        "acknowledge without an edge": _changed(
            encode(AcknowledgeDatagram(TOKEN, SECOND_NS, TRUCK)), lambda part: part.acknowledge.ClearField("edge")
        ),
        "refusal with the name of another number": _changed(
            encode(Refusal(106, "FIELD_RANGE")), lambda part: setattr(part.refusal, "name", "FIELD_TYPE")
        ),
        **refused_messages(),
    }


def refused_messages() -> dict[str, bytes]:
    """Return publications and subscriptions by name that must be refused."""
    plain, full = encode(PublishDatagram(MESSAGE)), encode(PublishDatagram(EVERYTHING))
    subscribe = encode(SubscribeDatagram(Subscription(TRUCK, parse_query("a"), CIRCLE)))
    polygon = encode(PublishDatagram(Message(MessageId(1), TRUCK, "Collision", NOON, address=ToArea(Polygon(RING)))))
    return {
        "message without a source": _changed(plain, lambda part: part.publish.message.ClearField("source")),
        "message with a wildcard in its topic": _changed(plain, lambda part: setattr(part.publish.message, "topic", "a/+")),
        "message with a tag twice": _changed(full, lambda part: part.publish.message.tags.append("i80")),
        "message with a blank in a tag": _changed(full, lambda part: part.publish.message.tags.append("a b")),
        "message with 33 tags": _changed(plain, lambda part: part.publish.message.tags.extend(f"t{n}" for n in range(33))),
        "message valid until before it was seen": _changed(plain, lambda part: setattr(part.publish.message, "valid_until", 1)),
        "message of priority 4": full.replace(b"\x48\x00\x50\x01", b"\x48\x04\x50\x01"),
        "message with a field without a value": _changed(plain, lambda part: part.publish.message.fields["x"].SetInParent()),
        "message with an empty address": _changed(plain, lambda part: part.publish.message.address.SetInParent()),
        "circle of radius 0": _changed(full, lambda part: setattr(part.publish.message.address.area.circle, "radius_m", 0.0)),
        "area without a shape": _changed(full, lambda part: part.publish.message.address.area.ClearField("circle")),
        "ring with one longitude too few": _changed(
            polygon, lambda part: part.publish.message.address.area.polygon.outer.longitudes.pop()
        ),
        "ring that is not closed": _changed(polygon, _opened),
        "union without parts": _changed(full, lambda part: part.publish.message.address.area.union.SetInParent()),
        "malformed query": _changed(subscribe, lambda part: setattr(part.subscribe, "query", "a & ")),
        "subscription with QoS 3": _changed(subscribe, lambda part: setattr(part.subscribe, "qos", 3)),
        "subscription that ends before it starts": _changed(subscribe, _turned_round),
        "share with a slash": _changed(subscribe, lambda part: setattr(part.subscribe, "share", "a/b")),
    }


def refused_texts() -> dict[str, bytes]:
    """Return JSON texts by name that must be refused."""
    report = orjson.loads(to_json(REPORT))
    message = orjson.loads(to_json(EVERYTHING))
    return {
        "JSON: no bytes": b"",
        "JSON: not an object": b"[]",
        "JSON: no type": b"{}",
        "JSON: an unknown type": b'{"type": "mesage"}',
        "JSON: an unknown member": orjson.dumps(report | {"spede_mps": 3}),
        "JSON: a missing member": orjson.dumps({name: held for name, held in report.items() if name != "place"}),
        "JSON: null": orjson.dumps(report | {"heading_deg": None}),
        "JSON: an id as a number": orjson.dumps(message | {"id": 5}),
        "JSON: an id of 65 bits": orjson.dumps(message | {"id": "18446744073709551616"}),
        "JSON: an instant without a zone": orjson.dumps(report | {"seen_at": "2030-01-01T12:00:00"}),
        "JSON: an instant on a day that does not exist": orjson.dumps(report | {"seen_at": "2030-02-30T12:00:00Z"}),
        "JSON: an unknown priority": orjson.dumps(message | {"priority": "urgent"}),
        "JSON: a field beyond 2^53": orjson.dumps(message | {"fields": {"x": 2**53}}),
        "JSON: a body that is not base64": orjson.dumps(message | {"body": "?"}),
        "JSON: latitude 91": orjson.dumps(report | {"place": {"latitude": 91, "longitude": 0}}),
    }


def _changed(data: bytes, change: Callable[[pb.Datagram], object]) -> bytes:
    part = pb.Datagram.FromString(data)
    change(part)
    return part.SerializeToString(deterministic=True)


def _opened(part: pb.Datagram) -> None:
    ring = part.publish.message.address.area.polygon.outer
    del ring.latitudes[-1], ring.longitudes[-1]


def _turned_round(part: pb.Datagram) -> None:
    part.subscribe.start, part.subscribe.end = 2, 1


def why_refused(read: Callable[[bytes], object], data: bytes) -> dict[str, object]:
    """Return number and name of the reason for which a reader refuses the bytes."""
    try:
        value = read(data)
    except Malformed as fault:
        return {"reason": fault.reason.value, "reason_name": fault.reason.name}
    raise AssertionError(f"{data[:40]!r} was accepted as {value}")


def vectors() -> dict[str, object]:
    """Return the content of the file."""
    good = [
        {"name": name, "hex": encode(value).hex(), "value": orjson.loads(to_json(value))} for name, value in accepted().items()
    ]
    bad = [{"name": name, "hex": data.hex(), **why_refused(decode, data)} for name, data in refused_datagrams().items()]
    too_long = b"\0" * (MESSAGE_BYTES_MAX + 1)
    bad.append({"name": "one byte too long", "hex": "00", "times": len(too_long), **why_refused(decode, too_long)})
    texts = [{"name": name, "json": data.decode(), **why_refused(from_json, data)} for name, data in refused_texts().items()]
    return {"accepted": good, "refused": bad, "refused_json": texts}


def written() -> bytes:
    """Return the bytes of the file."""
    return orjson.dumps(vectors(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    VECTORS.write_bytes(written())
