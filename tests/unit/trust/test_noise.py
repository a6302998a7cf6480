from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model.reasons import Malformed, Reason
from milepost.trust import noise
from milepost.trust.noise import FIRST_BYTES_MIN, SECOND_BYTES_MIN, NoiseInitiator, NoiseResponder, SessionKeys, public_of

PUBLISHED = orjson.loads((Path(__file__).parents[2] / "vectors" / "noise_ik.json").read_bytes())
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]
"""All points of small order that 255 bits can write (RFC 7748, section 7)."""

OURS, THEIRS, ONCE, TWICE = (bytes([number]) * 32 for number in (1, 2, 3, 4))


def published(name: str) -> bytes:
    return bytes.fromhex(PUBLISHED[name])


def message(number: int) -> tuple[bytes, bytes]:
    one = PUBLISHED["messages"][number]
    return bytes.fromhex(one["payload"]), bytes.fromhex(one["ciphertext"])


@pytest.fixture
def with_their_prologue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_HASH", sha256(noise._CHAINING_KEY + published("prologue")).digest())


@pytest.mark.usefixtures("with_their_prologue")
def test_both_sides_match_the_published_vectors() -> None:
    assert public_of(published("resp_static")) == published("init_remote_static")
    initiator = NoiseInitiator(published("init_static"), published("init_remote_static"), published("init_ephemeral"))
    responder = NoiseResponder(published("resp_static"))
    (first, first_sealed), (second, second_sealed) = message(0), message(1)
    assert initiator.write(first) == first_sealed
    heard = responder.read(first_sealed)
    assert (heard.payload, heard.key) == (first, public_of(published("init_static")))
    answer, keys = responder.answer(heard, published("resp_ephemeral"), second)
    assert answer == second_sealed
    assert initiator.read(answer) == (second, SessionKeys(keys.receive, keys.send))
    so_far = sha256(heard.hash + second_sealed[:32]).digest()
    assert sha256(so_far + second_sealed[32:]).digest() == published("handshake_hash")
    for number, key in ((2, keys.receive), (3, keys.send), (4, keys.receive), (5, keys.send)):
        plain, sealed = message(number)
        nonce = bytes(4) + (number // 2 - 1).to_bytes(8)
        assert AESGCM(key).encrypt(nonce, plain, None) == sealed


def test_a_different_prologue_does_not_interoperate() -> None:
    assert noise.PROLOGUE == b"milepost 1"
    with pytest.raises(Malformed):
        NoiseResponder(published("resp_static")).read(message(0)[1])


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_point_of_low_order_is_refused_in_every_position(point: bytes) -> None:
    with pytest.raises(Malformed, match="low order"):
        NoiseInitiator(OURS, point, ONCE).write(b"")
    with pytest.raises(Malformed, match="low order"):
        NoiseResponder(THEIRS).read(point + bytes(100))
    initiator = NoiseInitiator(OURS, public_of(THEIRS), ONCE)
    initiator.write(b"")
    with pytest.raises(Malformed, match="low order"):
        initiator.read(point + bytes(16))


def test_a_static_key_of_low_order_inside_a_well_sealed_message_is_refused() -> None:
    ephemeral_key, responder_key = public_of(ONCE), public_of(THEIRS)
    shared = X25519PrivateKey.from_private_bytes(ONCE).exchange(X25519PublicKey.from_public_bytes(responder_key))
    _, key = noise._mix(noise._CHAINING_KEY, shared)
    so_far = noise._hash_with(noise._hash_with(noise._HASH, responder_key), ephemeral_key)
    sealed_key = AESGCM(key).encrypt(bytes(12), bytes(32), so_far)
    with pytest.raises(Malformed, match="low order"):
        NoiseResponder(THEIRS).read(ephemeral_key + sealed_key + bytes(16))


def test_a_truncated_message_is_refused_with_its_size() -> None:
    initiator = NoiseInitiator(OURS, public_of(THEIRS), ONCE)
    first = initiator.write(b"")
    assert len(first) == FIRST_BYTES_MIN
    with pytest.raises(Malformed, match="message 1 has 95 bytes"):
        NoiseResponder(THEIRS).read(first[:-1])
    second, _ = NoiseResponder(THEIRS).answer(NoiseResponder(THEIRS).read(first), TWICE, b"")
    assert len(second) == SECOND_BYTES_MIN
    with pytest.raises(Malformed, match="message 2 has 47 bytes"):
        initiator.read(second[:-1])


def test_an_answer_to_another_handshake_is_refused() -> None:
    mine, another = (NoiseInitiator(OURS, public_of(THEIRS), ephemeral) for ephemeral in (ONCE, TWICE))
    mine.write(b"")
    responder = NoiseResponder(THEIRS)
    answer, _ = responder.answer(responder.read(another.write(b"")), b"5" * 32, b"")
    with pytest.raises(Malformed) as caught:
        mine.read(answer)
    assert caught.value.reason is Reason.DECRYPTION_FAILED


def test_a_message_for_another_responder_is_refused() -> None:
    with pytest.raises(Malformed) as caught:
        NoiseResponder(OURS).read(NoiseInitiator(OURS, public_of(THEIRS), ONCE).write(b""))
    assert caught.value.reason is Reason.DECRYPTION_FAILED


def test_an_ephemeral_key_makes_one_message() -> None:
    initiator = NoiseInitiator(OURS, public_of(THEIRS), ONCE)
    initiator.write(b"one")
    with pytest.raises(AssertionError):
        initiator.write(b"two")


def test_one_message_answered_with_two_ephemeral_keys_gives_four_different_keys() -> None:
    responder = NoiseResponder(THEIRS)
    heard = responder.read(NoiseInitiator(OURS, public_of(THEIRS), ONCE).write(b""))
    keys = sorted([*responder.answer(heard, ONCE, b"")[1], *responder.answer(heard, TWICE, b"")[1]])
    assert all(one != next_one for one, next_one in pairwise(keys))
