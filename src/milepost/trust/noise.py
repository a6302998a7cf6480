"""The handshake Noise_IK_25519_AESGCM_SHA256 (Noise, revision 34), both sides, as functions of keys and bytes.

       initiator knows the responder's key           responder
    1  e, es, s, ss, payload             ──────▶     read: initiator's key, payload
       read: payload, keys               ◀──────  2  e, ee, se, payload

Invariants:
- an ephemeral key is used for one message only: otherwise the same key and nonce would seal two plaintexts;
- a message that cannot be opened changes nothing: the initiator goes on waiting for the right answer;
- a shared secret of zeros (a point of low order) is refused, though Noise leaves that open: no honest peer produces it;
- message 1 may be a replay. Its content is authentic but its time is not known: `sent_at` in the payload states it.
"""

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model.reasons import Malformed, Reason
from milepost.wire.sealed import KEY_BYTES, TAG_BYTES

PROTOCOL: Final = b"Noise_IK_25519_AESGCM_SHA256"
PROLOGUE: Final = b"milepost 1"
FIRST_BYTES_MIN: Final = KEY_BYTES + KEY_BYTES + TAG_BYTES + TAG_BYTES
SECOND_BYTES_MIN: Final = KEY_BYTES + TAG_BYTES

_CHAINING_KEY: Final = PROTOCOL.ljust(32, b"\0")  # a name of up to 32 bytes is its own hash (5.2)
_HASH: Final = sha256(_CHAINING_KEY + PROLOGUE).digest()
_NONCE: Final = bytes(12)  # each key of a handshake seals once
_SEALED_KEY_END: Final = KEY_BYTES + KEY_BYTES + TAG_BYTES


class SessionKeys(NamedTuple):
    """The keys of a session, one for each direction."""

    send: bytes
    receive: bytes


@dataclass(frozen=True, slots=True)
class InitiatorMessage:
    """Message 1 as decrypted by the responder: the initiator's key, the payload, and the state that the answer needs."""

    key: bytes
    payload: bytes
    chaining_key: bytes
    hash: bytes
    ephemeral: X25519PublicKey
    static: X25519PublicKey


def public_of(private: bytes) -> bytes:
    """Return the public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


class NoiseInitiator:
    """The initiator's side of one handshake."""

    __slots__ = ("_chaining_key", "_ephemeral", "_hash", "_responder", "_responder_key", "_static")

    def __init__(self, static: bytes, responder_key: bytes, ephemeral: bytes) -> None:
        self._static = X25519PrivateKey.from_private_bytes(static)
        self._ephemeral = X25519PrivateKey.from_private_bytes(ephemeral)
        self._responder = X25519PublicKey.from_public_bytes(responder_key)
        self._responder_key = responder_key
        self._chaining_key = b""
        self._hash = b""

    def write(self, payload: bytes) -> bytes:
        """Return message 1; to be called once."""
        assert not self._hash, "an ephemeral key is used for one message"
        ephemeral_key = self._ephemeral.public_key().public_bytes_raw()
        transcript = _hash_with(_hash_with(_HASH, self._responder_key), ephemeral_key)
        chaining_key, key = _mix(_CHAINING_KEY, _diffie_hellman(self._ephemeral, self._responder))
        sealed_key = AESGCM(key).encrypt(_NONCE, self._static.public_key().public_bytes_raw(), transcript)
        transcript = _hash_with(transcript, sealed_key)
        self._chaining_key, key = _mix(chaining_key, _diffie_hellman(self._static, self._responder))
        sealed = AESGCM(key).encrypt(_NONCE, payload, transcript)
        self._hash = _hash_with(transcript, sealed)
        return ephemeral_key + sealed_key + sealed

    def read(self, message: bytes) -> tuple[bytes, SessionKeys]:
        """Return the payload of message 2, and the keys; a message that cannot be opened is refused, and another may be tried."""
        assert self._hash, "`write` is called before `read`"
        if len(message) < SECOND_BYTES_MIN:
            raise Malformed(
                Reason.DECRYPTION_FAILED, f"message 2 has {len(message)} bytes, at least {SECOND_BYTES_MIN} are needed"
            )
        ephemeral_key = message[:KEY_BYTES]
        ephemeral = X25519PublicKey.from_public_bytes(ephemeral_key)
        chaining_key, _ = _mix(self._chaining_key, _diffie_hellman(self._ephemeral, ephemeral))
        chaining_key, key = _mix(chaining_key, _diffie_hellman(self._static, ephemeral))
        payload = _decrypt(key, message[KEY_BYTES:], _hash_with(self._hash, ephemeral_key))
        return payload, SessionKeys(*_mix(chaining_key, b""))


class NoiseResponder:
    """The responder's side, for a static key; it holds no state of any handshake."""

    __slots__ = ("_hash", "_static")

    def __init__(self, static: bytes) -> None:
        self._static = X25519PrivateKey.from_private_bytes(static)
        self._hash = _hash_with(_HASH, public_of(static))

    def read(self, message: bytes) -> InitiatorMessage:
        """Return the content of message 1 and the initiator's key; whether that key is trusted is decided by its certificate."""
        if len(message) < FIRST_BYTES_MIN:
            raise Malformed(
                Reason.DECRYPTION_FAILED, f"message 1 has {len(message)} bytes, at least {FIRST_BYTES_MIN} are needed"
            )
        ephemeral_key, sealed_key, sealed = message[:KEY_BYTES], message[KEY_BYTES:_SEALED_KEY_END], message[_SEALED_KEY_END:]
        ephemeral = X25519PublicKey.from_public_bytes(ephemeral_key)
        transcript = _hash_with(self._hash, ephemeral_key)
        chaining_key, key = _mix(_CHAINING_KEY, _diffie_hellman(self._static, ephemeral))
        static_key = _decrypt(key, sealed_key, transcript)
        static = X25519PublicKey.from_public_bytes(static_key)
        transcript = _hash_with(transcript, sealed_key)
        chaining_key, key = _mix(chaining_key, _diffie_hellman(self._static, static))
        payload = _decrypt(key, sealed, transcript)
        return InitiatorMessage(static_key, payload, chaining_key, _hash_with(transcript, sealed), ephemeral, static)

    def answer(self, request: InitiatorMessage, ephemeral: bytes, payload: bytes) -> tuple[bytes, SessionKeys]:
        """Return message 2 and the keys; `ephemeral` must be random and used for this answer only."""
        private = X25519PrivateKey.from_private_bytes(ephemeral)
        ephemeral_key = private.public_key().public_bytes_raw()
        chaining_key, _ = _mix(request.chaining_key, _diffie_hellman(private, request.ephemeral))
        chaining_key, key = _mix(chaining_key, _diffie_hellman(private, request.static))
        sealed = AESGCM(key).encrypt(_NONCE, payload, _hash_with(request.hash, ephemeral_key))
        receive, send = _mix(chaining_key, b"")
        return ephemeral_key + sealed, SessionKeys(send, receive)


def _diffie_hellman(private: X25519PrivateKey, public: X25519PublicKey) -> bytes:
    """Return the Diffie-Hellman secret."""
    try:
        return private.exchange(public)
    except ValueError:  # raised by the library for an all-zero result
        raise Malformed(Reason.DECRYPTION_FAILED, "a public key is a point of low order") from None


def _mix(chaining_key: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Return Noise's HKDF with two outputs (4.3): the next chaining key and a key; at the end, the keys of both directions."""
    extracted = hmac.digest(chaining_key, secret, "sha256")
    first = hmac.digest(extracted, b"\x01", "sha256")
    return first, hmac.digest(extracted, first + b"\x02", "sha256")


def _hash_with(transcript: bytes, data: bytes) -> bytes:
    """Return the hash over the whole transcript."""
    return sha256(transcript + data).digest()


def _decrypt(key: bytes, sealed: bytes, transcript: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(_NONCE, sealed, transcript)
    except InvalidTag:
        raise Malformed(Reason.DECRYPTION_FAILED, "the handshake was encrypted with another key, or altered in transit") from None
