"""The sender: datagrams to many endpoints, encrypted for each, in the order of their class.

    reply ─▶ encrypted ─▶ ┐
    message ─▶ encoded once ─▶ encrypted for each receiver, or token and shared rest ─▶ one queue per class ─▶ the network

Invariants:
- a more urgent class is sent first (M29), also after the socket was full; replies follow emergencies;
- unsent bytes are limited; beyond the limit the least urgent datagrams are dropped, and counted;
- a counter is used once: it is assigned when a datagram is encrypted, whether or not it is ever sent.
"""

from collections import deque
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.publication import Delivery, Publication
from milepost.listeners.udp.batch_io import ADDRESS_BYTES
from milepost.listeners.udp.connection import SessionColumns, UdpConnection
from milepost.model.messages import FIELD_NAME_CHARACTERS_MAX, FIELDS_MAX, MessageId, Scalar
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.session_datagrams import MATCHES_MAX, Datagram, Init, PublishDatagram
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.datagrams import encode
from milepost.wire.mqtt import parse_forwarded
from milepost.wire.sealed import NONCE_ZEROS, SealedType
from milepost.wire.user_properties import ordinary_properties

# Outgoing messages, encoded once for all receivers.

FORWARDED: Final = 1 << 63
"""Bit that separates the ids of forwarded messages, which are their numbers at the sending edge, from local ids."""


def content_of(delivery: Delivery, number: int) -> bytes:
    """Return a message as encoded after version and token; raise `Malformed` if it is too large for a datagram.

    Receivers acknowledge every message that has a delivery number, also if its sender did not ask for reliability.
    """
    publication = delivery.publication
    if publication.extras and not publication.fields and publication.signed is None:
        publication.fields = _fields_in(publication.extras)
    matches = tuple(map(SubscriptionId, delivery.subscription_ids[:MATCHES_MAX]))
    message = publication.message_as(reliable=number > 0)
    return encode(PublishDatagram(message, None, matches))[2:]


def ensure_id(publication: Publication, number: int) -> None:
    """Assign an id to a message that has none; a forwarded message has the same id at every edge."""
    if not publication.id:
        publication.id = MessageId(FORWARDED | publication.forwarded_number if publication.forwarded_number else number)


def _fields_in(extras: bytes) -> dict[str, Scalar]:
    """Return the application's user properties of a message received over MQTT as fields, at most `FIELDS_MAX`."""
    properties = ordinary_properties(parse_forwarded(extras).user)
    usable = [(name, text) for name, text in properties if 0 < len(name) <= FIELD_NAME_CHARACTERS_MAX and name.isprintable()]
    return dict(usable[:FIELDS_MAX])


_VERSION: Final = b"\x08\x01"
_HEAD_BYTES: Final = 11

Octets = NDArray[np.uint8]


class DatagramOutput(Protocol):
    """The output socket; each call returns how many datagrams are done, fewer if the socket is full."""

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Send each head followed by the same tail."""

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Send each datagram to its address."""


class _DatagramBatch:
    """Datagrams to send."""

    __slots__ = ("addresses", "datagrams", "size")

    def __init__(self, datagrams: list[bytes], addresses: Octets) -> None:
        self.datagrams = datagrams
        self.addresses = addresses
        self.size = sum(map(len, datagrams))
        """Total bytes."""

    def send(self, output: DatagramOutput) -> int:
        """Send as many as possible; return how many are left."""
        done = output.send_many(self.datagrams, self.addresses)
        self.datagrams, self.addresses = self.datagrams[done:], self.addresses[done:]
        self.size = sum(map(len, self.datagrams))
        return len(self.datagrams)


class _SharedBatch:
    """The same message to many receivers, each with its own head."""

    __slots__ = ("addresses", "heads", "size", "tail")

    def __init__(self, heads: Octets, tail: bytes, addresses: Octets) -> None:
        self.heads = heads
        self.tail = tail
        self.addresses = addresses
        self.size = len(heads) * (_HEAD_BYTES + len(tail))
        """Total bytes."""

    def send(self, output: DatagramOutput) -> int:
        """Send as many as possible; return how many are left."""
        done = output.send_shared(self.heads, self.tail, self.addresses)
        self.heads, self.addresses = self.heads[done:], self.addresses[done:]
        self.size = len(self.heads) * (_HEAD_BYTES + len(self.tail))
        return len(self.heads)


class DatagramSealer(Protocol):
    """Encryption of the datagrams to endpoints."""

    def seal_all(self, numbers: NDArray[np.intp], tail: bytes, addresses: Octets) -> "_DatagramBatch | _SharedBatch":
        """Return the same content for several sessions: each datagram is version, token and *tail*."""


class PlainSealer:
    """No encryption: for experiments."""

    def __init__(self, columns: SessionColumns) -> None:
        self._columns = columns

    def seal_all(self, numbers: NDArray[np.intp], tail: bytes, addresses: Octets) -> "_DatagramBatch | _SharedBatch":
        """Return datagrams with their own token and a shared tail."""
        return _SharedBatch(_heads(self._columns, numbers), tail, addresses)


class NoiseSealer:
    """Encryption of each datagram with the key of its session."""

    def __init__(self, columns: SessionColumns) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # OpenSSL, only needed with encryption

        self._columns = columns
        self._cipher = AESGCM

    def seal_all(self, numbers: NDArray[np.intp], tail: bytes, addresses: Octets) -> "_DatagramBatch | _SharedBatch":
        """Return one encrypted datagram per session."""
        columns, cipher = self._columns, self._cipher
        counters = columns.counters[numbers]
        columns.counters[numbers] = counters + np.uint64(1)
        keys = columns.send_keys[numbers].tobytes()
        tokens = columns.tokens[numbers].astype("<u8").tobytes()
        nonces = counters.astype(">u8").tobytes()
        kind = bytes((SealedType.DATA,))
        beginning = _VERSION + b"\x11"
        datagrams = []
        for at in range(0, 8 * len(numbers), 8):
            token, counter = tokens[at : at + 8], nonces[at : at + 8]
            key = keys[4 * at : 4 * at + 32]
            datagrams.append(kind + token + counter + cipher(key).encrypt(NONCE_ZEROS + counter, beginning + token + tail, None))
        return _DatagramBatch(datagrams, addresses)


class UdpSender:
    """The outbound queues of the listener, one per class."""

    def __init__(
        self, columns: SessionColumns, sealer: DatagramSealer, output: DatagramOutput, counts: BrokerCounters, unsent_max: int
    ) -> None:
        self._columns = columns
        self._sealer = sealer
        self._output = output
        self._counts = counts
        self._unsent_max = unsent_max
        self._queues: tuple[deque[_DatagramBatch | _SharedBatch], ...] = tuple(deque() for _ in Priority)
        self._replies: list[tuple[bytes, bytes]] = []
        self._unsent = 0
        self.bytes_sent = 0
        self.datagrams_sent = 0

    @property
    def has_unsent(self) -> bool:
        """Whether datagrams wait for the socket."""
        return self._unsent > 0

    def reply(self, data: bytes, address: bytes) -> None:
        """Send a reply outside any session, as it is."""
        self._replies.append((data, address))

    def send_to(self, connection: UdpConnection, value: Datagram, monotonic_now: int) -> None:
        """Send a datagram to one session."""
        has_session = not isinstance(value, Init) and value.session is not None
        self.send_to_all(
            [connection.number], encode(value)[_HEAD_BYTES if has_session else len(_VERSION) :], Priority.SAFETY, monotonic_now
        )

    def send_to_all(self, sessions: list[int], tail: bytes, priority: Priority, monotonic_now: int) -> None:
        """Send the same content to several sessions."""
        numbers = np.array(sessions, np.intp)
        self._columns.sent_at[numbers] = monotonic_now
        self._put(self._sealer.seal_all(numbers, tail, self._columns.addresses[numbers]), priority)

    def multicast(self, tail: bytes, addresses: list[bytes], priority: Priority) -> None:
        """Send the same content to several multicast addresses, without session and encryption."""
        rows = np.frombuffer(b"".join(addresses), np.uint8).reshape(-1, ADDRESS_BYTES)
        self._put(_DatagramBatch([_VERSION + tail] * len(addresses), rows), priority)

    def _put(self, batch: _DatagramBatch | _SharedBatch, priority: Priority) -> None:
        self._queues[priority].append(batch)
        self._unsent += batch.size
        while self._unsent > self._unsent_max:
            queue = next(queue for queue in reversed(self._queues) if queue)
            dropped = queue.popleft()
            self._unsent -= dropped.size
            self._counts.dropped[Reason.QUEUE_FULL] += len(dropped.addresses)

    def send(self) -> None:
        """Send as much as the socket accepts, the most urgent first."""
        emergencies, *others = self._queues
        has_capacity = self._send_queue(emergencies)
        if self._replies:
            self._send_replies()
        for queue in others:
            has_capacity = has_capacity and self._send_queue(queue)

    def _send_queue(self, queue: deque[_DatagramBatch | _SharedBatch]) -> bool:
        while queue:
            batch = queue[0]
            size, count = batch.size, len(batch.addresses)
            left = batch.send(self._output)
            sent = size - batch.size
            self._unsent -= sent
            self.bytes_sent += sent
            self.datagrams_sent += count - left
            if left:
                return False
            queue.popleft()
        return True

    def _send_replies(self) -> None:
        """Send replies outside sessions; drop those the socket does not accept, since the endpoint will repeat its request."""
        replies, self._replies = self._replies, []
        addresses = np.frombuffer(b"".join(address for _, address in replies), np.uint8).reshape(-1, ADDRESS_BYTES)
        sent = self._output.send_many([data for data, _ in replies], addresses)
        self.bytes_sent += sum(len(data) for data, _ in replies[:sent])
        self.datagrams_sent += sent


def _heads(columns: SessionColumns, numbers: NDArray[np.intp]) -> Octets:
    """Return version and token of each session, one per row."""
    heads = np.empty((len(numbers), _HEAD_BYTES), np.uint8)
    heads[:, :3] = (0x08, 0x01, 0x11)
    heads[:, 3:] = columns.tokens[numbers].astype("<u8").view(np.uint8).reshape(-1, 8)
    return heads
