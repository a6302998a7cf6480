"""Sending: datagrams to many endpoints, sealed for each, in the order of their class.

    answer ─▶ sealed ─▶ ┐
    message ─▶ encoded once ─▶ sealed for each taker, or token and shared rest ─▶ a lane for each class ─▶ the network

What must hold:
- a more urgent class leaves first (M29), also when the network takes no more for a while; answers come after emergencies;
- what waits for the network is limited in bytes; then the least urgent is given up, and counted;
- a counter is used once: it is taken when a datagram is sealed, whether or not it is ever sent.
"""

from collections import deque
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.doors.udp.addresses import ADDRESS_BYTES
from milepost.doors.udp.link import Seats, UdpLink
from milepost.edge.counts import Counts
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.sessions import Datagram, Init
from milepost.wire.datagrams import encode
from milepost.wire.sealed import NONCE_ZEROS, Kind

_VERSION: Final = b"\x08\x01"
_HEAD_BYTES: Final = 11

Octets = NDArray[np.uint8]


class Post(Protocol):
    """Where datagrams are handed over; each gives how many were taken, fewer when there is no room for now."""

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Each head, followed by the same tail."""

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Each datagram to its address."""


class _Many:
    """Datagrams on their way out."""

    __slots__ = ("addresses", "datagrams", "size")

    def __init__(self, datagrams: list[bytes], addresses: Octets) -> None:
        self.datagrams = datagrams
        self.addresses = addresses
        self.size = sum(map(len, datagrams))
        """Bytes of all of them."""

    def send(self, post: Post) -> int:
        """Hand over what can be; gives how many are left."""
        taken = post.send_many(self.datagrams, self.addresses)
        self.datagrams, self.addresses = self.datagrams[taken:], self.addresses[taken:]
        self.size = sum(map(len, self.datagrams))
        return len(self.datagrams)


class _Shared:
    """The same message to many, each with its own beginning."""

    __slots__ = ("addresses", "heads", "size", "tail")

    def __init__(self, heads: Octets, tail: bytes, addresses: Octets) -> None:
        self.heads = heads
        self.tail = tail
        self.addresses = addresses
        self.size = len(heads) * (_HEAD_BYTES + len(tail))
        """Bytes of all of them."""

    def send(self, post: Post) -> int:
        """Hand over what can be; gives how many are left."""
        taken = post.send_shared(self.heads, self.tail, self.addresses)
        self.heads, self.addresses = self.heads[taken:], self.addresses[taken:]
        self.size = len(self.heads) * (_HEAD_BYTES + len(self.tail))
        return len(self.heads)


class Seals(Protocol):
    """How datagrams to endpoints are closed."""

    def close_all(self, numbers: NDArray[np.intp], tail: bytes, addresses: Octets) -> "_Many | _Shared":
        """The same content for several sessions: each datagram is version, token and `tail`."""


class NoSeals:
    """Everybody may read what is sent: for experiments."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats

    def close_all(self, numbers: NDArray[np.intp], tail: bytes, addresses: Octets) -> "_Many | _Shared":
        """The token, and what all share."""
        return _Shared(_heads(self._seats, numbers), tail, addresses)


class NoiseSeals:
    """Each datagram is sealed with the key of its session."""

    def __init__(self, seats: Seats) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # OpenSSL, which a plain edge does without

        self._seats = seats
        self._cipher = AESGCM

    def close_all(self, numbers: NDArray[np.intp], tail: bytes, addresses: Octets) -> "_Many | _Shared":
        """A seal for each."""
        seats, cipher = self._seats, self._cipher
        counters = seats.counters[numbers]
        seats.counters[numbers] = counters + np.uint64(1)
        keys = seats.send_keys[numbers].tobytes()
        tokens = seats.tokens[numbers].astype("<u8").tobytes()
        nonces = counters.astype(">u8").tobytes()
        kind = bytes((Kind.DATA,))
        beginning = _VERSION + b"\x11"
        datagrams = []
        for at in range(0, 8 * len(numbers), 8):
            token, counter = tokens[at : at + 8], nonces[at : at + 8]
            key = keys[4 * at : 4 * at + 32]
            datagrams.append(kind + token + counter + cipher(key).encrypt(NONCE_ZEROS + counter, beginning + token + tail, None))
        return _Many(datagrams, addresses)


class Sender:
    """What is on its way to the network."""

    def __init__(self, seats: Seats, seals: Seals, post: Post, counts: Counts, unsent_max: int) -> None:
        self._seats = seats
        self._seals = seals
        self._post = post
        self._counts = counts
        self._unsent_max = unsent_max
        self._lanes: tuple[deque[_Many | _Shared], ...] = tuple(deque() for _ in Priority)
        self._replies: list[tuple[bytes, bytes]] = []
        self._unsent = 0
        self.bytes_sent = 0
        self.datagrams_sent = 0

    @property
    def has_unsent(self) -> bool:
        """Whether the network did not take all."""
        return self._unsent > 0

    def reply(self, data: bytes, address: bytes) -> None:
        """Send something that is no session's, as it is."""
        self._replies.append((data, address))

    def tell(self, link: UdpLink, value: Datagram, beat: int) -> None:
        """Say something to one session."""
        has_session = not isinstance(value, Init) and value.session is not None
        self.tell_all([link.number], encode(value)[_HEAD_BYTES if has_session else len(_VERSION) :], Priority.SAFETY, beat)

    def tell_all(self, sessions: list[int], tail: bytes, priority: Priority, beat: int) -> None:
        """Say the same to several sessions."""
        numbers = np.array(sessions, np.intp)
        self._seats.told_at[numbers] = beat
        self._put(self._seals.close_all(numbers, tail, self._seats.addresses[numbers]), priority)

    def shout(self, tail: bytes, addresses: list[bytes], priority: Priority) -> None:
        """Say the same at several addresses, to whoever listens: without session and seal."""
        rows = np.frombuffer(b"".join(addresses), np.uint8).reshape(-1, ADDRESS_BYTES)
        self._put(_Many([_VERSION + tail] * len(addresses), rows), priority)

    def _put(self, parcel: _Many | _Shared, priority: Priority) -> None:
        self._lanes[priority].append(parcel)
        self._unsent += parcel.size
        while self._unsent > self._unsent_max:
            lane = next(lane for lane in reversed(self._lanes) if lane)
            given_up = lane.popleft()
            self._unsent -= given_up.size
            self._counts.dropped[Reason.QUEUE_FULL] += len(given_up.addresses)

    def send(self) -> None:
        """Hand over all that the network takes, the most urgent first."""
        emergencies, *others = self._lanes
        is_more_taken = self._is_sent(emergencies)
        if self._replies:
            self._send_replies()
        for lane in others:
            is_more_taken = is_more_taken and self._is_sent(lane)

    def _is_sent(self, lane: deque[_Many | _Shared]) -> bool:
        while lane:
            parcel = lane[0]
            size, count = parcel.size, len(parcel.addresses)
            left = parcel.send(self._post)
            sent = size - parcel.size
            self._unsent -= sent
            self.bytes_sent += sent
            self.datagrams_sent += count - left
            if left:
                return False
            lane.popleft()
        return True

    def _send_replies(self) -> None:
        """What is no session's is never kept: who asked will ask again."""
        replies, self._replies = self._replies, []
        addresses = np.frombuffer(b"".join(address for _, address in replies), np.uint8).reshape(-1, ADDRESS_BYTES)
        sent = self._post.send_many([data for data, _ in replies], addresses)
        self.bytes_sent += sum(len(data) for data, _ in replies[:sent])
        self.datagrams_sent += sent


def _heads(seats: Seats, numbers: NDArray[np.intp]) -> Octets:
    """Version and token, one a row."""
    heads = np.empty((len(numbers), _HEAD_BYTES), np.uint8)
    heads[:, :3] = (0x08, 0x01, 0x11)
    heads[:, 3:] = seats.tokens[numbers].astype("<u8").view(np.uint8).reshape(-1, 8)
    return heads
