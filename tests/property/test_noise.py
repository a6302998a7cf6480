"""The handshake against an independent implementation, in both roles, and the replay window against a set (M28)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.reasons import Malformed, Reason
from milepost.trust.noise import NoiseInitiator, NoiseResponder, SessionKeys, public_of
from milepost.trust.replay_window import WIDTH, ReplayWindow
from unit.trust.independent_noise import independent_handshake, keys_of

keys = st.binary(min_size=32, max_size=32)
payloads = st.binary(max_size=300)


@given(keys, keys, keys, keys, payloads, payloads)
def test_our_initiator_interoperates_with_a_foreign_responder(
    ours: bytes, theirs: bytes, our_ephemeral: bytes, their_ephemeral: bytes, first: bytes, second: bytes
) -> None:
    initiator = NoiseInitiator(ours, public_of(theirs), our_ephemeral)
    responder = independent_handshake(static=theirs, ephemeral=their_ephemeral)
    assert responder.read_message(initiator.write(first)) == first
    payload, got = initiator.read(bytes(responder.write_message(second)))
    assert payload == second
    assert (got.receive, got.send) == keys_of(responder)


@given(keys, keys, keys, keys, payloads, payloads)
def test_our_responder_interoperates_with_a_foreign_initiator(
    ours: bytes, theirs: bytes, our_ephemeral: bytes, their_ephemeral: bytes, first: bytes, second: bytes
) -> None:
    responder = NoiseResponder(ours)
    initiator = independent_handshake(static=theirs, ephemeral=their_ephemeral, responder_key=public_of(ours))
    heard = responder.read(bytes(initiator.write_message(first)))
    assert (heard.key, heard.payload) == (public_of(theirs), first)
    message, got = responder.answer(heard, our_ephemeral, second)
    assert initiator.read_message(message) == second
    assert (got.receive, got.send) == keys_of(initiator)


@given(keys, keys, keys, st.data())
def test_a_message_1_with_any_bit_changed_is_refused(ours: bytes, theirs: bytes, ephemeral: bytes, draw: st.DataObject) -> None:
    message = NoiseInitiator(ours, public_of(theirs), ephemeral).write(b"hello")
    with pytest.raises(Malformed) as caught:
        NoiseResponder(theirs).read(changed(message, draw))
    assert caught.value.reason is Reason.DECRYPTION_FAILED


@given(keys, keys, keys, keys, st.data())
def test_a_message_2_with_any_bit_changed_is_refused_and_the_genuine_one_still_accepted(
    ours: bytes, theirs: bytes, our_ephemeral: bytes, their_ephemeral: bytes, draw: st.DataObject
) -> None:
    initiator, responder = NoiseInitiator(ours, public_of(theirs), our_ephemeral), NoiseResponder(theirs)
    message, their_keys = responder.answer(responder.read(initiator.write(b"")), their_ephemeral, b"welcome")
    with pytest.raises(Malformed) as caught:
        initiator.read(changed(message, draw))
    assert caught.value.reason is Reason.DECRYPTION_FAILED
    assert initiator.read(message) == (b"welcome", SessionKeys(their_keys.receive, their_keys.send))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_by_both_sides(noise: bytes) -> None:
    initiator = NoiseInitiator(b"1" * 32, public_of(b"2" * 32), b"3" * 32)
    initiator.write(b"")
    for read in (NoiseResponder(b"2" * 32).read, initiator.read):
        with pytest.raises(Malformed) as caught:
            read(noise)
        assert caught.value.reason is Reason.DECRYPTION_FAILED


@given(st.integers(0, 2**64 - 1000), st.lists(st.one_of(st.integers(0, 3 * WIDTH), st.integers(0, 8)), max_size=200))
def test_a_replay_window_equals_a_set_of_received_counters_within_its_width(start: int, offsets: list[int]) -> None:
    window, came = ReplayWindow(), set[int]()
    for counter in (start + offset for offset in offsets):
        is_new = counter not in came and counter > max(came, default=-1) - WIDTH
        state = (window.greatest, window.seen)
        assert window.is_new(counter) is is_new
        assert (window.greatest, window.seen) == state
        if is_new:
            window.take(counter)
            came.add(counter)
    assert window.seen < 1 << WIDTH


def changed(message: bytes, draw: st.DataObject) -> bytes:
    """Return the message with one bit flipped, possibly the bit of a public key that X25519 ignores but the hash covers."""
    at = draw.draw(st.integers(0, len(message) * 8 - 1))
    data = bytearray(message)
    data[at // 8] ^= 1 << at % 8
    return bytes(data)
