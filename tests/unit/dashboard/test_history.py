import gzip
import random

from milepost.dashboard.history import STEP_MS, SceneHistory


def test_the_last_scene_not_after_an_instant_is_found() -> None:
    past = SceneHistory(minutes=1)
    assert past.find_at(5) is None
    assert past.span_ms() is None
    for at in (10_000, 11_000, 12_000):
        past.add(at, str(at).encode())
    found = {at: gzip.decompress(past.find_at(at) or b"") for at in (1, 10_999, 11_000, 99_000)}
    assert found == {1: b"10000", 10_999: b"10000", 11_000: b"11000", 99_000: b"12000"}
    assert past.span_ms() == (10_000, 12_000)


def test_scenes_are_stored_a_step_apart_and_for_the_configured_minutes() -> None:
    past = SceneHistory(minutes=0.1)
    for at in range(0, 20_000, 200):
        if past.is_due(at):
            past.add(at, b"")
    assert past.span_ms() == (13_000, 19_000)
    assert not past.is_due(19_000 + STEP_MS - 1)
    assert not SceneHistory(minutes=0).is_due(5)


def test_the_history_never_exceeds_its_byte_limit() -> None:
    past = SceneHistory(minutes=60, bytes_max=5_000)
    for at in range(0, 20_000, 1_000):
        past.add(at, random.Random(at).randbytes(1_000))
    assert past.span_ms() == (16_000, 19_000)
    past.add(21_000, random.Random(1).randbytes(9_000))
    assert past.span_ms() is None


def test_a_clock_set_back_replaces_later_scenes() -> None:
    past = SceneHistory(minutes=60)
    for at in (10_000, 20_000, 30_000):
        past.add(at, b"old")
    assert past.is_due(15_000)
    past.add(15_000, b"new")
    assert past.span_ms() == (10_000, 15_000)
