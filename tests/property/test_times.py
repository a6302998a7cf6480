"""Times as text: printed values parse to themselves and agree with the standard library, and any text is handled."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.time_windows import TimeWindow
from milepost.wire.times import duration_from_text, instant_from_text, instant_to_text, time_window_from_text, time_window_to_text

NOW = Instant(1_903_887_000_000_000_000)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REASONS = {Reason.TIME_UNREADABLE, Reason.TIME_RANGE, Reason.TIME_WINDOW_BACKWARDS}

instants = st.integers(0, FOREVER - 1).map(Instant)
ends = instants | st.just(FOREVER)
starts = instants | st.just(BEGINNING)
words = ["last", "next", "since", "from", "until", "on", "in", "ago", "now", "always", "last", "..", "/", "10", "1.5", "9" * 30]
more_words = [
    "minutes",
    "h",
    "hour",
    "weeks",
    "ns",
    "PT2H",
    "P1W",
    "18:00Z",
    "23:59:60Z",
    "2030-05-01T18:00:00Z",
    "2030-02-30",
    ",",
]
phrases = st.lists(st.sampled_from(words + more_words), max_size=7)
clocks = st.from_regex(
    r"\A[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,10})?(Z|[+-][0-2][0-9]:[0-6][0-9])\Z"
)
texts = st.text() | phrases.map(" ".join) | phrases.map("".join) | clocks

readers: list[Callable[[str], object]] = [
    lambda text: instant_from_text(text, NOW),
    duration_from_text,
    lambda text: time_window_from_text(text, NOW),
]


@given(instants, instants)
@example(Instant(0), NOW)
@example(FOREVER, NOW)
def test_every_instant_prints_and_parses_to_the_nanosecond_whatever_the_time(instant: Instant, now: Instant) -> None:
    assert instant_from_text(instant_to_text(instant), now) == instant


@given(starts, ends, instants)
def test_every_time_window_prints_and_parses_to_itself_whatever_the_time(one: Instant, other: Instant, now: Instant) -> None:
    time_window = TimeWindow(min(one, other), max(one, other))
    assert time_window_from_text(time_window_to_text(time_window), now) == time_window


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2261, 12, 31)),  # noqa: DTZ001 - the zone is drawn apart
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_instants_printed_by_the_standard_library_are_parsed_to_the_same_instant(moment: datetime, offset_min: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=offset_min)))
    microseconds = (there - EPOCH) // timedelta(microseconds=1)
    assert instant_from_text(there.isoformat(), NOW) == microseconds * 1000


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59))
def test_the_three_ways_to_write_a_duration_agree(hours: int, minutes: int, seconds: int) -> None:
    length_ns = (hours * 3600 + minutes * 60 + seconds) * 10**9
    assert duration_from_text(f"{hours}h{minutes}m{seconds}s") == length_ns
    assert duration_from_text(f"{hours} hours {minutes} minutes {seconds} seconds") == length_ns
    assert duration_from_text(f"PT{hours}H{minutes}M{seconds}S") == length_ns


@pytest.mark.parametrize("read", readers)
@given(text=texts)
@example(text="9" * 200)
@example(text="\ud800")
@example(text="in " + "9" * 100 + " weeks")
@example(text="0001-01-01T00:00:00+23:59")
@example(text="9999-12-31T23:59:59-23:59")
def test_any_text_is_parsed_or_refused_with_a_time_reason(read: Callable[[str], object], text: str) -> None:
    try:
        read(text)
    except Malformed as fault:
        assert fault.reason in REASONS  # noqa: PT017 - most texts are refused, some are not
        assert fault.detail  # noqa: PT017
