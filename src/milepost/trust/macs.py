"""Macs: what lets an edge tell a stranger from a peer before it computes anything dear.

    mac1     whoever sends INIT knows this edge's public key: noise from the network costs one HMAC
    mac2     whoever sends INIT receives at the address it claims: asked for under load, with a cookie
    reset    whoever sends RESET is the edge that gave the token, also after it lost all sessions

What must hold:
- macs are compared in constant time;
- a cookie is a function of secret and address: the edge remembers nothing for those who have not shown one;
- a cookie travels sealed to the mac1 that it answers: only who sent the INIT, or saw it, can read it.
"""

import hmac
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model.reasons import Malformed, Reason
from milepost.wire.sealed import MAC_BYTES, MACS_BYTES, TOKEN_BYTES

NO_MAC: Final = bytes(MAC_BYTES)

_NONCE: Final = bytes(12)  # the key is another one for each salt


class Macs:
    """The macs of INITs to one responder."""

    __slots__ = ("_key",)

    def __init__(self, responder_key: bytes) -> None:
        self._key = sha256(b"milepost mac1" + responder_key).digest()

    def stamp(self, data: bytes, cookie: bytes = b"") -> bytes:
        """The 32 bytes to append to an INIT: mac1, and mac2 if there is a cookie."""
        first = _mac(self._key, data)
        return first + (_mac(cookie, data + first) if cookie else NO_MAC)

    def is_first_right(self, init: bytes) -> bool:
        """Whether the sender knows the responder's public key."""
        return hmac.compare_digest(_mac(self._key, init[:-MACS_BYTES]), init[-MACS_BYTES:-MAC_BYTES])

    def is_second_right(self, init: bytes, cookie: bytes) -> bool:
        """Whether the sender was given this cookie."""
        return hmac.compare_digest(_mac(cookie, init[:-MAC_BYTES]), init[-MAC_BYTES:])


def cookie_of(secret: bytes, address: bytes) -> bytes:
    """The cookie of an address, for as long as the secret is in use."""
    return _mac(secret, address)


def seal_cookie(responder_key: bytes, salt: bytes, cookie: bytes, mac1: bytes) -> bytes:
    """The cookie as it travels, in answer to the INIT with that mac1; `salt` is drawn for each."""
    return AESGCM(_cookie_key(responder_key, salt)).encrypt(_NONCE, cookie, mac1)


def open_cookie(responder_key: bytes, salt: bytes, sealed: bytes, mac1: bytes) -> bytes:
    """The cookie that answers the INIT with that mac1."""
    try:
        return AESGCM(_cookie_key(responder_key, salt)).decrypt(_NONCE, sealed, mac1)
    except InvalidTag:
        raise Malformed(Reason.SEAL_BROKEN, "the cookie answers another INIT, or comes from another edge") from None


def reset_key(static: bytes) -> bytes:
    """The key of an edge's resets: the same whenever it starts with the same static key."""
    return _derived(static, b"", b"milepost reset")


def reset_of(reset_key: bytes, token: int) -> bytes:
    """What shows that the edge which gave this token no longer has its session."""
    return _mac(reset_key, token.to_bytes(TOKEN_BYTES, "little"))


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:MAC_BYTES]


def _cookie_key(responder_key: bytes, salt: bytes) -> bytes:
    return _derived(responder_key, salt, b"milepost cookie")


def _derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) of 32 bytes, which is one block."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), purpose + b"\x01", "sha256")
