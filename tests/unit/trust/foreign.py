"""An independent implementation of Noise, set up for our handshake."""

from typing import Any
from warnings import catch_warnings, simplefilter

from noise.connection import Keypair, NoiseConnection

from milepost.trust.noise import PROLOGUE, PROTOCOL, Keys


def foreign(*, static: bytes, ephemeral: bytes, responder_key: bytes = b"") -> Any:
    """The other implementation; as the initiator if it knows the responder's key."""
    connection = NoiseConnection.from_name(PROTOCOL)
    connection.set_prologue(PROLOGUE)
    connection.set_keypair_from_private_bytes(Keypair.STATIC, static)
    connection.set_keypair_from_private_bytes(Keypair.EPHEMERAL, ephemeral)
    if responder_key:
        connection.set_as_initiator()
        connection.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, responder_key)
    else:
        connection.set_as_responder()
    with catch_warnings():  # it would rather draw its ephemeral key itself
        simplefilter("ignore")
        connection.start_handshake()
    return connection


def keys_of(connection: Any) -> Keys:
    """Its keys once the handshake is over."""
    ciphers = connection.noise_protocol
    return Keys(ciphers.cipher_state_encrypt.k, ciphers.cipher_state_decrypt.k)
