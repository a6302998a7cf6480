"""MACs and cookies: an edge authenticates the peer cheaply before it does expensive cryptography.

    mac1     the sender of INIT knows this edge's public key: noise from the network costs one HMAC
    mac2     the sender of INIT receives at the address it claims: required under load, with a cookie
    reset    the sender of RESET is the edge that issued the token, also after it lost all sessions

Invariants:
- MACs are compared in constant time;
- a cookie is a function of secret and address: the edge stores nothing for senders that have not presented one;
- a cookie is sealed to the mac1 that it answers: only the sender of the INIT, or an observer of it, can read it.
"""

import hmac
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model.reasons import Malformed, Reason
from milepost.wire.sealed import MAC_BYTES, MACS_BYTES, TOKEN_BYTES

NO_MAC: Final = bytes(MAC_BYTES)

_NONCE: Final = bytes(12)  # each salt gives another key


class Macs:
    """The MACs of INITs to one responder."""

    __slots__ = ("_key",)

    def __init__(self, responder_key: bytes) -> None:
        self._key = sha256(b"milepost mac1" + responder_key).digest()

    def stamp(self, data: bytes, cookie: bytes = b"") -> bytes:
        """Return the 32 bytes to append to an INIT: mac1, and mac2 if there is a cookie."""
        mac1 = _mac(self._key, data)
        return mac1 + (_mac(cookie, data + mac1) if cookie else NO_MAC)

    def is_mac1_valid(self, init: bytes) -> bool:
        """Return whether the sender knows the responder's public key (mac1)."""
        return hmac.compare_digest(_mac(self._key, init[:-MACS_BYTES]), init[-MACS_BYTES:-MAC_BYTES])

    def is_mac2_valid(self, init: bytes, cookie: bytes) -> bool:
        """Return whether the sender has this cookie (mac2)."""
        return hmac.compare_digest(_mac(cookie, init[:-MAC_BYTES]), init[-MAC_BYTES:])


def cookie_of(secret: bytes, address: bytes) -> bytes:
    """Return the cookie of an address, valid for as long as the secret is in use."""
    return _mac(secret, address)


def seal_cookie(responder_key: bytes, salt: bytes, cookie: bytes, mac1: bytes) -> bytes:
    """Return the sealed cookie that answers the INIT with that mac1; `salt` must be random each time."""
    return AESGCM(_cookie_key(responder_key, salt)).encrypt(_NONCE, cookie, mac1)


def open_cookie(responder_key: bytes, salt: bytes, sealed: bytes, mac1: bytes) -> bytes:
    """Return the cookie that answers the INIT with that mac1."""
    try:
        return AESGCM(_cookie_key(responder_key, salt)).decrypt(_NONCE, sealed, mac1)
    except InvalidTag:
        raise Malformed(Reason.DECRYPTION_FAILED, "the cookie answers another INIT, or comes from another edge") from None


def reset_key(static: bytes) -> bytes:
    """Return the key of an edge's resets: the same after every start with the same static key."""
    return _derive(static, b"", b"milepost reset")


def reset_of(reset_key: bytes, token: int) -> bytes:
    """Return the proof that the edge which issued this token no longer has its session."""
    return _mac(reset_key, token.to_bytes(TOKEN_BYTES, "little"))


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:MAC_BYTES]


def _cookie_key(responder_key: bytes, salt: bytes) -> bytes:
    return _derive(responder_key, salt, b"milepost cookie")


def _derive(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Return HKDF-SHA256 (RFC 5869) of 32 bytes, which is one block."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), purpose + b"\x01", "sha256")
