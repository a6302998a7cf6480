"""The sender: encodes the actions of a tick and writes them, once per connection.

Invariants:
- a message to many sessions is encoded once per encoding;
- a connection with more unsent bytes than the limit is not clear: later messages wait in its session's outbound queue, by class
  and deadline, and not here;
- unsent bytes are limited: a client that sends requests but does not read the replies is not read any more.
"""

from base64 import b64encode
from typing import Final

from milepost.broker.broker import Broker
from milepost.broker.effects import Deliver, FastPathBatch, Release
from milepost.broker.publication import Delivery, Publication
from milepost.broker.routing import ReceiverGroup, ReceiverGroups
from milepost.broker.session import NO_CONNECTION, Connection, Session
from milepost.listeners.mqtt.connection import ENCODING_V3, ENCODING_V5, MqttConnection, MqttConnectionState
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, Scalar
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, PacketType, Properties, Version, encode, encode_length, forwarded, publish_head
from milepost.wire.mqtt.fields import PACKET_BYTES_MAX, frame_at
from milepost.wire.user_properties import PREFIX, PROPERTY_BYTES_MAX, UserProperties, message_to_properties, signed_property

# Outgoing PUBLISH packets, encoded once for all receivers with the same encoding.

_EXPIRY: Final = b"\x02"
_SUBSCRIPTION_ID: Final = b"\x0b"
_SUBSCRIPTION_ID_MAX: Final = 268_435_455
"""Maximum in MQTT; JSON subscriptions may have greater ids, which are left out."""
_TOPIC_ALIAS: Final = b"\x23"
_DUP, _RETAIN = 0b1000, 0b0001


def packet_of(delivery: Delivery, number: int, encoding: int, now: Instant, *, is_duplicate: bool) -> bytes:
    """Return the PUBLISH for all sessions with a shared encoding."""
    publication = delivery.publication
    flags = _flags(delivery, is_duplicate=is_duplicate)
    if encoding == ENCODING_V3:
        head = publish_head(publication.topic.encode(), flags, Version.V3, b"", len(publication.body), number or None)
    else:
        properties = properties_of(delivery, now)
        head = publish_head(publication.topic.encode(), flags, Version.V5, properties, len(publication.body), number or None)
    return head + publication.body


def packet_for(connection: MqttConnection, delivery: Delivery, number: int, now: Instant, *, is_duplicate: bool) -> bytes | None:
    """Return the PUBLISH for one connection of `ENCODING_OWN`; None if it exceeds the client's packet size. [MQTT-3.1.2-24]"""
    publication = delivery.publication
    topic, properties = publication.topic.encode(), properties_of(delivery, now)
    topic, properties = _aliased(connection, publication.topic, topic, properties)
    head = publish_head(
        topic, _flags(delivery, is_duplicate=is_duplicate), Version.V5, properties, len(publication.body), number or None
    )
    if connection.packet_max and len(head) + len(publication.body) > connection.packet_max:
        if topic and connection.aliases_out:  # the client never received this alias
            connection.aliases_out.pop(publication.topic, None)
        return None
    return head + publication.body


def _aliased(connection: MqttConnection, name: str, topic: bytes, properties: bytes) -> tuple[bytes, bytes]:
    """Return topic and properties with a topic alias; the first topics of a connection are assigned one each."""
    if not connection.aliases_out_max:
        return topic, properties
    if connection.aliases_out is None:
        connection.aliases_out = {}
    alias = connection.aliases_out.get(name)
    if alias is not None:
        return b"", properties + _TOPIC_ALIAS + alias.to_bytes(2, "big")
    if len(connection.aliases_out) >= connection.aliases_out_max:  # [MQTT-3.1.2-26]
        return topic, properties
    alias = connection.aliases_out[name] = len(connection.aliases_out) + 1
    return topic, properties + _TOPIC_ALIAS + alias.to_bytes(2, "big")


def _flags(delivery: Delivery, *, is_duplicate: bool) -> int:
    flags = delivery.qos << 1
    if is_duplicate and delivery.qos:  # [MQTT-3.3.1-1], [MQTT-3.3.1-2]
        flags |= _DUP
    return flags | _RETAIN if delivery.has_retain_flag else flags


def properties_of(delivery: Delivery, now: Instant) -> bytes:
    """Return the encoded MQTT 5 properties of a PUBLISH, without their length."""
    publication = delivery.publication
    found = _extras_of(publication)
    if publication.valid_until != FOREVER:  # the remaining time. [MQTT-3.3.2-6]
        left_s = max(0, -((now - publication.valid_until) // SECOND_NS))
        found += _EXPIRY + min(left_s, 0xFFFFFFFF).to_bytes(4, "big")
    return found + subscription_ids_block(delivery.subscription_ids) if delivery.subscription_ids else found


def _extras_of(publication: Publication) -> bytes:
    """Return the forwarded properties; encode them now if the message arrived at another listener."""
    if publication.extras is None:
        publication.extras = extras_from(publication.message)
    return publication.extras


def extras_from(message: Message) -> bytes:
    """Return the properties of a message: its fields, Milepost's properties, and the one by which clients verify a signature."""
    fields = tuple((name, _text_of(value)) for name, value in sorted(message.fields.items()) if not name.startswith(PREFIX))
    encodable = tuple((name, text) for name, text in fields if "\0" not in text and len(text.encode()) <= PROPERTY_BYTES_MAX)
    user = (*encodable, *message_to_properties(message), *_signed_property_of(message))
    return forwarded(Properties(user=user))


def _signed_property_of(message: Message) -> UserProperties:
    if not message.signature:
        return ()
    from milepost.wire.datagrams import envelope_of  # noqa: PLC0415  # loads protobuf, which unsigned messages do not need

    return signed_property(envelope_of(message))


def _text_of(value: Scalar) -> str:
    """Return a field as the text of a user property: as in JSON, bytes in base64."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case _:
            return str(value)


def subscription_ids_block(ids: tuple[int, ...]) -> bytes:
    """Return subscription identifiers as encoded properties. [MQTT-3.3.4-3] to [MQTT-3.3.4-5]"""
    return b"".join(
        _SUBSCRIPTION_ID + encode_length(subscription_id) for subscription_id in ids if subscription_id <= _SUBSCRIPTION_ID_MAX
    )


def chunk_for(group: ReceiverGroup, packets: list[bytes], encoding: int) -> bytes:
    """Return QoS 0 packets that arrived in *encoding* as the bytes for all sessions of a group."""
    if group.encoding == encoding and not group.subscription_ids:
        return packets[0] if len(packets) == 1 else b"".join(packets)
    if group.form is None:
        group.form = subscription_ids_block(group.subscription_ids) if group.encoding != ENCODING_V3 else b""
    version = Version.V3 if group.encoding == ENCODING_V3 else Version.V5
    return b"".join([_reencoded(packet, encoding, version, group.form) for packet in packets])


def _reencoded(packet: bytes, encoding: int, version: Version, properties: bytes) -> bytes:
    topic, body = _topic_and_payload(packet, encoding)
    return publish_head(topic, 0, version, properties, len(body), None) + body


def publication_of(packet: bytes, encoding: int, origin: Session, priority: Priority, now: Instant) -> Publication:
    """Return a QoS 0 packet as a publication, for sessions that cannot receive its bytes unchanged."""
    topic, body = _topic_and_payload(packet, encoding)
    return Publication(topic.decode(), body, now, source=origin.name, origin=origin.number, priority=priority)


def _topic_and_payload(packet: bytes, encoding: int) -> tuple[bytes, bytes]:
    """Return topic and payload of a QoS 0 PUBLISH without properties."""
    frame = frame_at(packet, 0, PACKET_BYTES_MAX)
    assert frame is not None, "a whole packet was put into the run"
    start, _ = frame
    end = start + 2 + int.from_bytes(packet[start : start + 2], "big")
    return packet[start + 2 : end], packet[end if encoding == ENCODING_V3 else end + 1 :]


def is_shared_encoding(encoding: int) -> bool:
    """Return whether all sessions with this encoding can receive the same bytes."""
    return encoding in (ENCODING_V3, ENCODING_V5)


class MqttSender:
    """The output of a tick, by connection."""

    def __init__(self, broker: Broker, unsent_max: int) -> None:
        self._broker = broker
        self._unsent_max = unsent_max
        self._dirty: list[Connection] = []
        self.bytes_sent = 0

    def put(self, connection: Connection, data: bytes) -> None:
        """Append *data* to the output of one connection."""
        if not connection.out:
            self._dirty.append(connection)
        connection.out.append(data)

    def discard_replies(self) -> list[MqttConnection]:
        """Discard replies that depend on unstored changes; return the connections they were for."""
        affected = [
            connection for connection in self._dirty if isinstance(connection, MqttConnection) and _depends_on_storage(connection)
        ]
        for connection in affected:
            connection.out.clear()
        self._dirty = [connection for connection in self._dirty if connection.out]
        return affected

    def release(self, action: Release) -> None:
        """Send PUBREL, the next step of a QoS 2 exchange."""
        connection = action.session.connection
        if isinstance(connection, MqttConnection):
            self.put(connection, encode(Acknowledge(PacketType.PUBREL, action.packet_id), connection.version))  # [MQTT-4.3.3-4]

    def run(self, run: FastPathBatch, now: Instant) -> None:
        """Forward QoS 0 packets as received, joined once per group: the path of nearly all messages."""
        dirty = self._dirty
        packets = run.packets
        held: list[ReceiverGroup] = []
        delivered = 0
        for group in run.receivers.groups:
            if not is_shared_encoding(group.encoding):
                held.append(group)
                continue
            chunk = chunk_for(group, packets, run.encoding)
            busy: list[Session] = []
            for session in group.sessions:
                if session.is_ready:
                    out = session.connection.out
                    if not out:
                        dirty.append(session.connection)
                    out.append(chunk)
                else:
                    busy.append(session)
            delivered += (len(group.sessions) - len(busy)) * len(packets)
            if busy:
                held.append(ReceiverGroup((group.encoding, 0, group.subscription_ids, False), busy))
        self._broker.count_fast_batch(len(packets), delivered)
        if held:
            self._requeue(run, ReceiverGroups(tuple(held)), now)

    def _requeue(self, run: FastPathBatch, receivers: ReceiverGroups, now: Instant) -> None:
        """Requeue a run for receivers that are busy or need their own encoding, message by message."""
        for packet, origin in zip(run.packets, run.origins, strict=True):
            self._broker.requeue(publication_of(packet, run.encoding, origin, run.priority, now), receivers, now)

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions with the same encoding."""
        delivery, number = action.delivery, action.packet_id
        encoding = action.encoding
        if not is_shared_encoding(encoding):
            for session in action.sessions:
                self._deliver_own(session, delivery, number, now, is_duplicate=action.is_duplicate)
            return
        packet = packet_of(delivery, number, encoding, now, is_duplicate=action.is_duplicate)
        dirty = self._dirty
        for session in action.sessions:
            connection = session.connection
            if connection is NO_CONNECTION or session.encoding != encoding:  # disconnected or reconnected in this tick
                continue
            if not connection.out:
                dirty.append(connection)
            connection.out.append(packet)

    def _deliver_own(self, session: Session, delivery: Delivery, number: int, now: Instant, *, is_duplicate: bool) -> None:
        connection = session.connection
        if not isinstance(connection, MqttConnection):
            return
        packet = packet_for(connection, delivery, number, now, is_duplicate=is_duplicate)
        if packet is not None:
            self.put(connection, packet)
            return
        # Proceed as if it had been sent and acknowledged. [MQTT-3.1.2-25]
        self._broker.fail(session, number, delivery, Reason.PACKET_OVER_RECEIVER_LIMIT)

    def send_all(self) -> list[MqttConnection]:
        """Write all output to the sockets; return the connections that did not accept all of it."""
        stuck = []
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            out = connection.out
            if not isinstance(connection, MqttConnection) or connection.state is MqttConnectionState.CLOSED:
                out.clear()
                continue
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.bytes_sent += len(data)
            if connection.unsent:
                connection.unsent.append(memoryview(data))
                connection.unsent_size += len(data)
            else:
                try:
                    sent = connection.stream.write(data)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError:  # broken: the next read closes it
                    continue
                if sent == len(data) and not connection.stream.has_unsent:
                    continue
                if sent < len(data):
                    connection.unsent.append(memoryview(data)[sent:])
                    connection.unsent_size = len(data) - sent
            self._mark_if_full(connection)
            stuck.append(connection)
        return stuck

    def _mark_if_full(self, connection: MqttConnection) -> None:
        if connection.unsent_size > self._unsent_max and connection.session is not None:
            connection.session.is_ready = False

    def send_rest(self, connection: MqttConnection) -> bool:
        """Write the unsent bytes of a connection that is writable again; return whether all are sent."""
        try:
            return self._send_rest(connection)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            connection.unsent, connection.unsent_size = [], 0
            return True

    def _send_rest(self, connection: MqttConnection) -> bool:
        connection.stream.flush()
        if connection.stream.has_unsent:
            return False
        while connection.unsent:
            view = connection.unsent[0]
            sent = connection.stream.write(view)
            connection.unsent_size -= sent
            if sent < len(view):
                connection.unsent[0] = view[sent:]
                return False
            del connection.unsent[0]
        session = connection.session
        if session is not None and session.connection is connection and (session.queue is None or not session.queue.has_plain):
            session.is_ready = True
        return not connection.stream.has_unsent


def _depends_on_storage(connection: MqttConnection) -> bool:
    """Return whether replies may confirm stored changes: all replies of a durable session, and acknowledgements."""
    return connection.awaits_storage or (connection.session is not None and connection.session.is_durable)
