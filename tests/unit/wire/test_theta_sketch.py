"""Theta sketches: those that Spark wrote are read, every sketch comes back, and nothing is repaired."""

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.incidents.witnesses import (
    THETA_MAX,
    WITNESSES_MAX,
    Witnesses,
    WitnessHash,
    estimated_count,
    witness_hash,
    witnesses_of,
)
from milepost.model.reasons import Malformed
from milepost.wire.theta_sketch import sketch_from_bytes, sketch_to_bytes

BY_SPARK = {
    1: "AQMDAAA6zJOxZpNxGfmjEg==",
    2: "AQQDPQEazJMClR/Iy4ybNYqKccZZeL46wA==",
    3: "AQQDPgEazJMDSo/kZcZNmsSinHGWXi+Oubyx0mdaUgqA",
    65: (
        "AgQDPAEazJMnuwq4XRAPfEATcc+QAWE003FH9Po2CWUHmC1SgJo6KCFYsjiKihpWC4pBazHENCwxZUZUHewQiRJMOWPE8ja9schQcmgLW8A2cw"
        "dQYB54ISShAugeoSuQfWtFoN0GRILNLH8MD0l2wqDawWp8OjGjE5Mdxo5jnGsUEGFBszK7V0EMBvCxmlEosL08txatwpAfwJC6l6JxwSihDpef"
        "M94bX/W/k8TSQNWe+RJ72wYWiLP1CkmjIEeaXRiFSrgyGZsgRlixsQpVV7cHNlooiGcPmO04gFdv2wZtMsEj02L9DSb6Uh7YoDIdcvswro1nBM"
        "aLciUOurRnApAOHEEkK/+7ZHVh5GVucz8OFnMvdoYyoF829QKGZfYZ7b9qTVZwcf+2zjqELc9FvwvyQkNhQB4fO/xx+FFRvaphHEHNImZtcQm4"
        "8YEJ+hLFbPfhof0TRCI9+WA/L/xhQ7dusAHv42OSXF0MrhlGZYvbIrVxYcIJoy4IWX9OFvgdcFYRVH+oO44VzBjPe/4xslrtcH8cyCEQoC6kDh"
        "9JgJ4dxW1kYRFdp5BMO3JCwfWjt1sGwk8DVz0zZJb8VCcXGl7r4IhbUTREIuKdkn99IwUf/zABfvEUhy0q4psJ3oH2pFkUf587Z6OHUYMBCmra"
        "dZ0="
    ),
}
"""Sketches of the first n of car-0, car-1, …, as Spark 4.3 writes them."""

hashes = st.sets(st.integers(1, THETA_MAX - 1).map(WitnessHash), min_size=1, max_size=WITNESSES_MAX).map(frozenset)


@pytest.mark.parametrize("count", BY_SPARK)
def test_the_sketches_of_spark_are_those_of_the_definition(count: int) -> None:
    assert sketch_from_bytes(b64decode(BY_SPARK[count])) == witnesses_of(f"car-{number}" for number in range(count))


@given(hashes)
def test_sketches_survive_encoding_and_decoding(some: frozenset[WitnessHash]) -> None:
    assert sketch_from_bytes(sketch_to_bytes(Witnesses(some))) == Witnesses(some)
    if len(some) == WITNESSES_MAX and max(some) + 1 < THETA_MAX:
        assert sketch_from_bytes(sketch_to_bytes(Witnesses(some, max(some) + 1))).theta == max(some) + 1


@given(st.binary(max_size=600) | st.binary(max_size=80).map(lambda rest: b64decode(BY_SPARK[3])[:8] + rest))
def test_bytes_are_a_sketch_or_malformed(data: bytes) -> None:
    try:
        sketch_from_bytes(data)
    except Malformed:
        return
    assert len(data) >= 16


@pytest.mark.parametrize("count", BY_SPARK)
def test_sketches_with_bytes_missing_or_added_are_refused(count: int) -> None:
    whole = b64decode(BY_SPARK[count])
    for data in (whole[:-1], whole + b"x", b"", whole[:8], bytes([7]) + whole[1:], whole[:1] + b"\x02" + whole[2:]):
        with pytest.raises(Malformed):
            sketch_from_bytes(data)


def test_a_sketch_of_another_seed_is_refused() -> None:
    whole = bytearray(b64decode(BY_SPARK[3]))
    whole[6] ^= 1
    with pytest.raises(Malformed, match="default seed"):
        sketch_from_bytes(bytes(whole))


def test_hashes_out_of_order_are_refused() -> None:
    plain = sketch_to_bytes(Witnesses(frozenset(map(WitnessHash, (1, 2)))))
    with pytest.raises(Malformed, match="order"):
        sketch_from_bytes(plain[:16] + plain[24:] + plain[16:24])


@given(st.lists(st.integers(0, 300).map(str), min_size=1, max_size=300), st.data())
def test_the_sketch_of_a_union_is_that_of_all_endpoints(endpoints: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(endpoints)))
    whole = witnesses_of(endpoints)
    parts = [witnesses_of(some) for some in (endpoints[:cut], endpoints[cut:]) if some]
    merged = sorted({one for part in parts for one in (*part.hashes, part.theta)})[: WITNESSES_MAX + 1]
    assert merged[: len(whole.hashes)] == sorted(whole.hashes)
    assert whole.theta == THETA_MAX or merged[WITNESSES_MAX] == whole.theta
    assert witnesses_of(reversed(endpoints)) == whole


def test_the_estimate_of_many_witnesses_is_near_their_number() -> None:
    for count in (100, 1_000, 10_000):
        found = witnesses_of(f"car-{number}" for number in range(count))
        assert 0.6 * count < estimated_count(len(found.hashes), found.theta) < 1.6 * count


def test_the_hash_of_a_witness_is_that_of_the_published_definition() -> None:
    assert witness_hash("car-0") == 0x12A3F919719366B1
