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
from milepost.broker.effects import Deliver, Release, Run
from milepost.broker.publication import Delivery, Publication
from milepost.broker.routing import Fan, Group
from milepost.broker.session import NOWHERE, Link, Session
from milepost.listeners.mqtt.connection import ENCODING_V3, ENCODING_V5, MqttConnection, State
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Scalar
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Kind, Properties, Version, encode, encode_length, forwarded, publish_head
from milepost.wire.mqtt.fields import PACKET_BYTES_MAX, frame_at
from milepost.wire.user_properties import PREFIX, PROPERTY_BYTES_MAX, message_to_properties

# Outgoing PUBLISH packets, encoded once for all receivers with the same encoding.

_EXPIRY: Final = b"\x02"
_SUBSCRIPTION_ID: Final = b"\x0b"
_SUBSCRIPTION_ID_MAX: Final = 268_435_455
"""Maximum in MQTT; JSON subscriptions may have greater ids, which are left out."""
_TOPIC_ALIAS: Final = b"\x23"
_DUP, _RETAIN = 0b1000, 0b0001


def packet_of(delivery: Delivery, number: int, encoding: int, now: Instant, *, is_again: bool) -> bytes:
    """Return the PUBLISH for all sessions with a shared encoding."""
    publication = delivery.publication
    flags = _flags(delivery, is_again=is_again)
    if encoding == ENCODING_V3:
        head = publish_head(publication.topic.encode(), flags, Version.V3, b"", len(publication.body), number or None)
    else:
        properties = properties_of(delivery, now)
        head = publish_head(publication.topic.encode(), flags, Version.V5, properties, len(publication.body), number or None)
    return head + publication.body


def packet_for(link: MqttConnection, delivery: Delivery, number: int, now: Instant, *, is_again: bool) -> bytes | None:
    """Return the PUBLISH for one connection of `ENCODING_OWN`; None if it exceeds the client's packet size. [MQTT-3.1.2-24]"""
    publication = delivery.publication
    topic, properties = publication.topic.encode(), properties_of(delivery, now)
    topic, properties = _aliased(link, publication.topic, topic, properties)
    head = publish_head(topic, _flags(delivery, is_again=is_again), Version.V5, properties, len(publication.body), number or None)
    if link.packet_max and len(head) + len(publication.body) > link.packet_max:
        if topic and link.aliases_out:  # the client never received this alias
            link.aliases_out.pop(publication.topic, None)
        return None
    return head + publication.body


def _aliased(link: MqttConnection, name: str, topic: bytes, properties: bytes) -> tuple[bytes, bytes]:
    """Return topic and properties with a topic alias; the first topics of a connection are assigned one each."""
    if not link.aliases_out_max:
        return topic, properties
    if link.aliases_out is None:
        link.aliases_out = {}
    alias = link.aliases_out.get(name)
    if alias is not None:
        return b"", properties + _TOPIC_ALIAS + alias.to_bytes(2, "big")
    if len(link.aliases_out) >= link.aliases_out_max:  # [MQTT-3.1.2-26]
        return topic, properties
    alias = link.aliases_out[name] = len(link.aliases_out) + 1
    return topic, properties + _TOPIC_ALIAS + alias.to_bytes(2, "big")


def _flags(delivery: Delivery, *, is_again: bool) -> int:
    flags = delivery.qos << 1
    if is_again and delivery.qos:  # [MQTT-3.3.1-1], [MQTT-3.3.1-2]
        flags |= _DUP
    return flags | _RETAIN if delivery.is_from_store else flags


def properties_of(delivery: Delivery, now: Instant) -> bytes:
    """Return the encoded MQTT 5 properties of a PUBLISH, without their length."""
    publication = delivery.publication
    found = _extras_of(publication)
    if publication.valid_until != FOREVER:  # the remaining time. [MQTT-3.3.2-6]
        left_s = max(0, -((now - publication.valid_until) // SECOND_NS))
        found += _EXPIRY + min(left_s, 0xFFFFFFFF).to_bytes(4, "big")
    return found + labels_block(delivery.labels) if delivery.labels else found


def _extras_of(publication: Publication) -> bytes:
    """Return the forwarded properties; encode them now if the message arrived at another listener."""
    if publication.extras is None:
        fields = tuple(
            (name, _text_of(value)) for name, value in sorted(publication.fields.items()) if not name.startswith(PREFIX)
        )
        sayable = tuple((name, text) for name, text in fields if "\0" not in text and len(text.encode()) <= PROPERTY_BYTES_MAX)
        publication.extras = forwarded(Properties(user=(*sayable, *message_to_properties(publication.message))))
    return publication.extras


def _text_of(value: Scalar) -> str:
    """Return a field as the text of a user property: as in JSON, bytes in base64."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case _:
            return str(value)


def labels_block(labels: tuple[int, ...]) -> bytes:
    """Return subscription identifiers as encoded properties. [MQTT-3.3.4-3] to [MQTT-3.3.4-5]"""
    return b"".join(_SUBSCRIPTION_ID + encode_length(label) for label in labels if label <= _SUBSCRIPTION_ID_MAX)


def chunk_for(group: Group, packets: list[bytes], encoding: int) -> bytes:
    """Return QoS 0 packets that arrived in *encoding* as the bytes for all sessions of a group."""
    if group.encoding == encoding and not group.labels:
        return packets[0] if len(packets) == 1 else b"".join(packets)
    if group.form is None:
        group.form = labels_block(group.labels) if group.encoding != ENCODING_V3 else b""
    version = Version.V3 if group.encoding == ENCODING_V3 else Version.V5
    return b"".join([_converted(packet, encoding, version, group.form) for packet in packets])


def _converted(packet: bytes, encoding: int, version: Version, properties: bytes) -> bytes:
    topic, body = _taken_apart(packet, encoding)
    return publish_head(topic, 0, version, properties, len(body), None) + body


def publication_of(packet: bytes, encoding: int, origin: Session, priority: Priority, now: Instant) -> Publication:
    """Return a QoS 0 packet as a publication, for sessions that cannot receive its bytes unchanged."""
    topic, body = _taken_apart(packet, encoding)
    return Publication(topic.decode(), body, now, source=origin.name, origin=origin.number, priority=priority)


def _taken_apart(packet: bytes, encoding: int) -> tuple[bytes, bytes]:
    """Return topic and payload of a QoS 0 PUBLISH without properties."""
    frame = frame_at(packet, 0, PACKET_BYTES_MAX)
    assert frame is not None, "a whole packet was put into the run"
    start, _ = frame
    end = start + 2 + int.from_bytes(packet[start : start + 2], "big")
    return packet[start + 2 : end], packet[end if encoding == ENCODING_V3 else end + 1 :]


def is_shared_form(encoding: int) -> bool:
    """Return whether all sessions with this encoding can receive the same bytes."""
    return encoding in (ENCODING_V3, ENCODING_V5)


class Sender:
    """The output of a tick, by connection."""

    def __init__(self, broker: Broker, unsent_max: int) -> None:
        self._broker = broker
        self._unsent_max = unsent_max
        self._dirty: list[Link] = []
        self.bytes_sent = 0

    def put(self, link: Link, data: bytes) -> None:
        """Append *data* to the output of one connection."""
        if not link.out:
            self._dirty.append(link)
        link.out.append(data)

    def unsay(self) -> list[MqttConnection]:
        """Discard replies that depend on unstored changes; return the connections they were for."""
        taken = [link for link in self._dirty if isinstance(link, MqttConnection) and _rests_on_kept(link)]
        for link in taken:
            link.out.clear()
        self._dirty = [link for link in self._dirty if link.out]
        return taken

    def release(self, action: Release) -> None:
        """Send PUBREL, the next step of a QoS 2 exchange."""
        link = action.session.link
        if isinstance(link, MqttConnection):
            self.put(link, encode(Acknowledge(Kind.PUBREL, action.number), link.version))  # [MQTT-4.3.3-4]

    def run(self, run: Run, now: Instant) -> None:
        """Forward QoS 0 packets as received, joined once per group: the path of nearly all messages."""
        dirty = self._dirty
        packets = run.packets
        held: list[Group] = []
        delivered = 0
        for group in run.fan.groups:
            if not is_shared_form(group.encoding):
                held.append(group)
                continue
            chunk = chunk_for(group, packets, run.encoding)
            busy: list[Session] = []
            for session in group.sessions:
                if session.is_clear:
                    out = session.link.out
                    if not out:
                        dirty.append(session.link)
                    out.append(chunk)
                else:
                    busy.append(session)
            delivered += (len(group.sessions) - len(busy)) * len(packets)
            if busy:
                held.append(Group((group.encoding, 0, group.labels, False), busy))
        self._broker.count_run(len(packets), delivered)
        if held:
            self._hand_over(run, Fan(tuple(held)), now)

    def _hand_over(self, run: Run, fan: Fan, now: Instant) -> None:
        """Requeue a run for receivers that are busy or need their own encoding, message by message."""
        for packet, origin in zip(run.packets, run.origins, strict=True):
            self._broker.requeue(publication_of(packet, run.encoding, origin, run.priority, now), fan, now)

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions with the same encoding."""
        delivery, number = action.delivery, action.number
        encoding = action.encoding
        if not is_shared_form(encoding):
            for session in action.sessions:
                self._deliver_own(session, delivery, number, now, is_again=action.is_again)
            return
        packet = packet_of(delivery, number, encoding, now, is_again=action.is_again)
        dirty = self._dirty
        for session in action.sessions:
            link = session.link
            if link is NOWHERE or session.encoding != encoding:  # disconnected or reconnected in this tick
                continue
            if not link.out:
                dirty.append(link)
            link.out.append(packet)

    def _deliver_own(self, session: Session, delivery: Delivery, number: int, now: Instant, *, is_again: bool) -> None:
        link = session.link
        if not isinstance(link, MqttConnection):
            return
        packet = packet_for(link, delivery, number, now, is_again=is_again)
        if packet is not None:
            self.put(link, packet)
            return
        # Proceed as if it had been sent and acknowledged. [MQTT-3.1.2-25]
        self._broker.fail(session, number, delivery, Reason.PACKET_OVER_RECEIVER_LIMIT)

    def send_all(self) -> list[MqttConnection]:
        """Write all output to the sockets; return the connections that did not accept all of it."""
        stuck = []
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            out = link.out
            if not isinstance(link, MqttConnection) or link.state is State.CLOSED:
                out.clear()
                continue
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.bytes_sent += len(data)
            if link.unsent:
                link.unsent.append(memoryview(data))
                link.unsent_size += len(data)
            else:
                try:
                    sent = link.stream.write(data)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError:  # broken: the next read closes it
                    continue
                if sent == len(data) and not link.stream.has_unsent:
                    continue
                if sent < len(data):
                    link.unsent.append(memoryview(data)[sent:])
                    link.unsent_size = len(data) - sent
            self._mark(link)
            stuck.append(link)
        return stuck

    def _mark(self, link: MqttConnection) -> None:
        if link.unsent_size > self._unsent_max and link.session is not None:
            link.session.is_clear = False

    def send_rest(self, link: MqttConnection) -> bool:
        """Write the unsent bytes of a connection that is writable again; return whether all are sent."""
        try:
            return self._send_rest(link)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            link.unsent, link.unsent_size = [], 0
            return True

    def _send_rest(self, link: MqttConnection) -> bool:
        link.stream.flush()
        if link.stream.has_unsent:
            return False
        while link.unsent:
            view = link.unsent[0]
            sent = link.stream.write(view)
            link.unsent_size -= sent
            if sent < len(view):
                link.unsent[0] = view[sent:]
                return False
            del link.unsent[0]
        session = link.session
        if session is not None and session.link is link and (session.waiting is None or not session.waiting.has_plain):
            session.is_clear = True
        return not link.stream.has_unsent


def _rests_on_kept(link: MqttConnection) -> bool:
    """Return whether replies may confirm stored changes: all replies of a durable session, and acknowledgements."""
    return link.has_promised or (link.session is not None and link.session.is_kept)
