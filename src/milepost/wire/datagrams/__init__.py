"""Datagrams: values ↔ the bytes of one UDP datagram (M3, M6). `docs/reference/wire.md` has the layout.

Invariants:
- the encoding is canonical: tags and fields are sorted, fields with their default value are absent;
- decoding is strict: a datagram decodes to exactly the value that was sent, or raises `Malformed` with a reason;
- unknown fields are ignored, for compatibility with newer peers; all other unknown values are refused.
"""

from collections.abc import Callable
from typing import Final, assert_never

from google.protobuf.message import DecodeError, EncodeError

from milepost.model.messages import MESSAGE_BYTES_MAX
from milepost.model.reasons import Malformed, Reason
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    Datagram,
    Heartbeat,
    Init,
    Notify,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
    UnsubscribeDatagram,
)
from milepost.model.subscriptions import SubscriptionId
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams import messages, sessions
from milepost.wire.datagrams.areas import missing, require
from milepost.wire.datagrams.messages import envelope_of, message_from_envelope, signed_bytes

VERSION: Final = 1

__all__ = ["VERSION", "decode", "encode", "envelope_of", "message_from_envelope", "signed_bytes"]


def encode(value: Datagram) -> bytes:
    """Return the datagram of a value."""
    part = pb.Datagram()
    part.version = VERSION
    try:
        _write(value, part)
        data: bytes = part.SerializeToString(deterministic=True)
    except UnicodeEncodeError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"a lone surrogate in {fault.object[:20]!r}", at=fault.start) from None
    except EncodeError as fault:
        raise Malformed(Reason.MALFORMED, f"protobuf cannot encode it: {fault}") from None
    _check_size(len(data))
    return data


def decode(data: bytes | memoryview) -> Datagram:
    """Return the value of a datagram; raises only `Malformed`."""
    _check_size(len(data))
    try:
        part = pb.Datagram.FromString(bytes(data))
    except DecodeError:
        raise Malformed(Reason.MALFORMED, f"{len(data)} bytes that are not a protobuf message Datagram") from None
    if part.version != VERSION:
        raise Malformed(Reason.VERSION_UNKNOWN, f"version is {part.version}, and only version {VERSION} is known")
    kind = part.WhichOneof("content")
    if kind is None:
        raise missing(part, "content")
    return _READERS[kind](part)


def _check_size(size: int) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{size} bytes, {MESSAGE_BYTES_MAX} are allowed")


def _write(value: Datagram, part: pb.Datagram) -> None:
    if not isinstance(value, Init) and value.session is not None:
        part.session = value.session
    match value:
        case ReportSent():
            sessions.write_report(value.report, part.report)
        case PublishDatagram():
            messages.write_message(value.message, part.publish.message)
            part.publish.matches.extend(value.matches)
        case ReceivedDatagram():
            sessions.write_name(value.name, part.received)
        case Heartbeat():
            part.heartbeat.SetInParent()
        case Init():
            sessions.write_init(value, part.init)
        case AcknowledgeDatagram():
            sessions.write_acknowledge(value, part.acknowledge)
        case Close():
            part.close.cause = value.cause
        case Refusal():
            sessions.write_refusal(value, part.refusal)
        case SubscribeDatagram():
            messages.write_subscription(value.subscription, part.subscribe)
        case UnsubscribeDatagram():
            sessions.write_subscription_name(value.subscription, part.unsubscribe)
        case Notify():
            messages.write_notice(value.notice, part.notice)
        case _:
            assert_never(value)


def _session(part: pb.Datagram) -> SessionToken:
    if not part.session:
        raise missing(part, "session")
    return SessionToken(part.session)


def _maybe_session(part: pb.Datagram) -> SessionToken | None:
    return SessionToken(part.session) if part.session else None


def _read_init(part: pb.Datagram) -> Init:
    if part.session:
        raise Malformed(Reason.FIELD_UNKNOWN, "Datagram.session must be absent in INIT")
    return sessions.read_init(part.init)


def _read_publish(part: pb.Datagram) -> PublishDatagram:
    publish = part.publish
    require(publish, "message")
    matches = tuple(map(SubscriptionId, publish.matches))
    return PublishDatagram(messages.read_message(publish.message), _maybe_session(part), matches)


_READERS: Final[dict[str, Callable[[pb.Datagram], Datagram]]] = {
    "init": _read_init,
    "acknowledge": lambda part: sessions.read_acknowledge(part.acknowledge, _session(part)),
    "report": lambda part: ReportSent(_session(part), sessions.read_report(part.report)),
    "heartbeat": lambda part: Heartbeat(_session(part)),
    "close": lambda part: sessions.read_close(part.close, _session(part)),
    "refusal": lambda part: sessions.read_refusal(part.refusal, _maybe_session(part)),
    "publish": _read_publish,
    "subscribe": lambda part: SubscribeDatagram(messages.read_subscription(part.subscribe), _maybe_session(part)),
    "unsubscribe": lambda part: UnsubscribeDatagram(sessions.read_subscription_name(part.unsubscribe), _maybe_session(part)),
    "notice": lambda part: Notify(messages.read_notice(part.notice), _maybe_session(part)),
    "received": lambda part: ReceivedDatagram(sessions.read_name(part.received), _maybe_session(part)),
}
