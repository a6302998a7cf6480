"""An independent implementation of Noise, set up for our handshake."""

from typing import Any
from warnings import catch_warnings, simplefilter

from noise.connection import Keypair, NoiseConnection

from milepost.trust.noise import PROLOGUE, PROTOCOL, SessionKeys


def independent_handshake(*, static: bytes, ephemeral: bytes, responder_key: bytes = b"") -> Any:
    """Return a handshake of the other implementation, as the initiator if the responder's key is given."""
    connection = NoiseConnection.from_name(PROTOCOL)
    connection.set_prologue(PROLOGUE)
    connection.set_keypair_from_private_bytes(Keypair.STATIC, static)
    connection.set_keypair_from_private_bytes(Keypair.EPHEMERAL, ephemeral)
    if responder_key:
        connection.set_as_initiator()
        connection.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, responder_key)
    else:
        connection.set_as_responder()
    with catch_warnings():  # by default it generates its own ephemeral key
        simplefilter("ignore")
        connection.start_handshake()
    return connection


def keys_of(connection: Any) -> SessionKeys:
    """Return its keys after the handshake."""
    ciphers = connection.noise_protocol
    return SessionKeys(ciphers.cipher_state_encrypt.k, ciphers.cipher_state_decrypt.k)
