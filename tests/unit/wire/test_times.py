"""Times as text: every phrase of the table, exactness to the nanosecond, and explanations for unreadable texts."""

import pytest

from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.wire.times import (
    TIME_CHARACTERS_MAX,
    duration_from_text,
    instant_from_text,
    instant_to_text,
    time_window_from_text,
    time_window_to_text,
)

MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS

NOW = Instant(1_903_887_000 * SECOND_NS)
"""2030-05-01T17:30:00Z"""


def after(by_ns: int) -> Instant:
    return Instant(NOW + by_ns)


def instant_refusal(text: str) -> Malformed:
    with pytest.raises(Malformed) as caught:
        instant_from_text(text, NOW)
    return caught.value


def time_window_refusal(text: str) -> Malformed:
    with pytest.raises(Malformed) as caught:
        time_window_from_text(text, NOW)
    return caught.value


# Instants


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2030-05-01T17:30:00Z", NOW),
        ("2030-05-01T17:30Z", NOW),
        ("2030-05-01 17:30:00z", NOW),
        ("2030-05-01T19:30:00+02:00", NOW),
        ("2030-05-01T19:30:00+0200", NOW),
        ("2030-05-01T19:30:00+02", NOW),
        ("2030-05-01T08:00:00-09:30", NOW),
        ("2030-05-01T17:30:00.000000001Z", NOW + 1),
        ("2030-05-01T17:30:00,5Z", NOW + SECOND_NS // 2),
        ("1969-12-31T23:00:00-01:00", 0),
        ("2024-02-29T00:00:00Z", 1_709_164_800 * SECOND_NS),
        ("2262-04-11T23:47:16.854775807Z", FOREVER),
    ],
)
def test_an_iso_instant_is_parsed_to_the_nanosecond(text: str, instant: int) -> None:
    assert instant_from_text(text, NOW) == instant


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("now", NOW),
        (" NOW ", NOW),
        ("10 minutes ago", NOW - 10 * MINUTE_NS),
        ("PT10M ago", NOW - 10 * MINUTE_NS),
        ("in 2 hours", NOW + 2 * HOUR_NS),
        ("18:00Z", NOW + 30 * MINUTE_NS),
        ("17:29:59.5Z", NOW - SECOND_NS // 2),
        ("20:00+02:00", NOW + 30 * MINUTE_NS),
    ],
)
def test_a_phrase_is_relative_to_now(text: str, instant: int) -> None:
    assert instant_from_text(text, NOW) == instant


def test_a_time_of_day_is_today_by_the_calendar_of_its_zone() -> None:
    almost_midnight = instant_from_text("2030-05-01T23:30:00Z", NOW)
    assert instant_to_text(instant_from_text("18:00Z", almost_midnight)) == "2030-05-01T18:00:00Z"
    assert instant_to_text(instant_from_text("18:00+02:00", almost_midnight)) == "2030-05-02T16:00:00Z"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("2030-05-01T18:00:00", "has no time zone"),
        ("18:00", "has no time zone"),
        ("2030-05-01", "is a whole day"),
        ("2030-02-30T00:00:00Z", "there is no day 2030-02-30"),
        ("2030-13-01T00:00:00Z", "there is no day 2030-13-01"),
        ("0000-01-01T00:00:00Z", "there is no day 0000-01-01"),
        ("2023-02-29T00:00:00Z", "there is no day 2023-02-29"),
        ("2016-12-31T23:59:60Z", "leap seconds are not counted"),
        ("2030-05-01T24:00:00Z", "24:00:00 is not a time of day"),
        ("2030-05-01T18:60:00Z", "18:60:00 is not a time of day"),
        ("2030-05-01T18:00:61Z", "18:00:61 is not a time of day"),
        ("2030-05-01T18:00:00.1234567890Z", "10 digits after the second"),
        ("2030-05-01T18:00:00+24:00", "there is no offset +24:00"),
        ("2030-05-01T18:00:00+01:60", "there is no offset +01:60"),
        ("2030-5-1T18:00:00Z", "is not an instant"),
        ("20300501T180000Z", "is not an instant"),
        ("2030-05-01T18:00:00ZZ", "is not an instant"),
        ("yesterday", "is not an instant"),
        ("٢٠٣٠-05-01T18:00:00Z", "characters other than ASCII"),
        ("in a while", "is not a duration"),
        ("ago", "is not an instant"),
        ("z" * (TIME_CHARACTERS_MAX + 1), f"it has {TIME_CHARACTERS_MAX + 1} characters"),
    ],
)
def test_an_unreadable_instant_is_refused_with_an_explanation(text: str, sentence: str) -> None:
    fault = instant_refusal(text)
    assert fault.reason is Reason.TIME_UNREADABLE
    assert sentence in fault.detail


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1969-12-31T23:59:59.999999999Z", "before 1970"),
        ("1970-01-01T00:00:00+00:01", "before 1970"),
        ("0001-01-01T00:00:00Z", "before 1970"),
        ("2262-04-11T23:47:16.854775808Z", "after April 2262"),
        ("9999-12-31T23:59:59Z", "after April 2262"),
        ("99999 weeks ago", "longer than 292 years"),
        ("4000 weeks ago", "before 1970"),
        ("in 15000 weeks", "after April 2262"),
    ],
)
def test_an_instant_outside_1970_to_2262_is_refused(text: str, sentence: str) -> None:
    fault = instant_refusal(text)
    assert fault.reason is Reason.TIME_RANGE
    assert sentence in fault.detail


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (NOW, "2030-05-01T17:30:00Z"),
        (NOW + 500_000_000, "2030-05-01T17:30:00.500Z"),
        (NOW + 1_000, "2030-05-01T17:30:00.000001Z"),
        (NOW + 120, "2030-05-01T17:30:00.000000120Z"),
        (FOREVER, "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_a_fraction_of_a_second_prints_in_groups_of_three_digits(instant: int, text: str) -> None:
    assert instant_to_text(Instant(instant)) == text


def test_an_open_start_cannot_be_printed_as_an_instant() -> None:
    with pytest.raises(Malformed) as caught:
        instant_to_text(BEGINNING)
    assert caught.value.reason is Reason.TIME_RANGE


# Durations


@pytest.mark.parametrize(
    ("text", "length_ns"),
    [
        ("10 minutes", 10 * MINUTE_NS),
        ("1 minute", MINUTE_NS),
        ("1h30m", 90 * MINUTE_NS),
        ("1 hour 30 minutes", 90 * MINUTE_NS),
        ("90s", 90 * SECOND_NS),
        ("1.5 hours", 90 * MINUTE_NS),
        ("250ms", 250_000_000),
        ("0.001us", 1),
        ("2 weeks 1 day", 15 * DAY_NS),
        ("0s", 0),
        ("PT10M", 10 * MINUTE_NS),
        ("pt0.5s", SECOND_NS // 2),
        ("P1DT12H", 36 * HOUR_NS),
        ("P2W", 14 * DAY_NS),
        ("P3D", 3 * DAY_NS),
        ("9223372036854775807ns", FOREVER),
    ],
)
def test_a_duration_is_parsed_exactly(text: str, length_ns: int) -> None:
    assert duration_from_text(text) == length_ns


@pytest.mark.parametrize(
    ("text", "reason", "sentence"),
    [
        ("10", Reason.TIME_UNREADABLE, "is not an amount of"),
        ("minutes", Reason.TIME_UNREADABLE, "is not an amount of"),
        ("-10 minutes", Reason.TIME_UNREADABLE, "is not an amount of"),
        ("1 month", Reason.TIME_UNREADABLE, "months and years vary"),
        ("P1M", Reason.TIME_UNREADABLE, "months and years vary"),
        ("P1Y", Reason.TIME_UNREADABLE, "months and years vary"),
        ("PT1D", Reason.TIME_UNREADABLE, "is not an amount of H, M, S"),
        ("P", Reason.TIME_UNREADABLE, "is not a duration"),
        ("PT", Reason.TIME_UNREADABLE, "is not a duration"),
        ("P1DT", Reason.TIME_UNREADABLE, "is not a duration"),
        ("30m1h", Reason.TIME_UNREADABLE, "longer units come first"),
        ("1h 1 hour", Reason.TIME_UNREADABLE, "each once"),
        ("0.5ns", Reason.TIME_UNREADABLE, "not a whole number of nanoseconds"),
        ("9223372036854775808ns", Reason.TIME_RANGE, "longer than 292 years"),
        ("9" * 120 + "w", Reason.TIME_RANGE, "longer than 292 years"),
    ],
)
def test_an_invalid_duration_is_refused_with_an_explanation(text: str, reason: Reason, sentence: str) -> None:
    with pytest.raises(Malformed) as caught:
        duration_from_text(text)
    assert caught.value.reason is reason
    assert sentence in caught.value.detail


# Time windows


@pytest.mark.parametrize(
    ("text", "time_window"),
    [
        ("always", ALWAYS),
        ("../..", ALWAYS),
        ("last 10 minutes", TimeWindow(after(-10 * MINUTE_NS), NOW)),
        ("Last hour", TimeWindow(after(-HOUR_NS), NOW)),
        ("next 2 hours", TimeWindow(NOW, after(2 * HOUR_NS))),
        ("until 18:00Z", TimeWindow(NOW, after(30 * MINUTE_NS))),
        ("until now", TimeWindow(NOW, NOW)),
        ("since 2030-05-01T18:00:00Z", TimeWindow(after(30 * MINUTE_NS))),
        ("since 10 minutes ago", TimeWindow(after(-10 * MINUTE_NS))),
        ("from now on", TimeWindow(NOW)),
        ("from last 10 minutes on", TimeWindow(after(-10 * MINUTE_NS))),
        ("from 10 minutes ago until in 2 hours", TimeWindow(after(-10 * MINUTE_NS), after(2 * HOUR_NS))),
        ("2030-05-01T17:30:00Z/2030-05-01T18:00:00Z", TimeWindow(NOW, after(30 * MINUTE_NS))),
        ("2030-05-01T17:30:00Z / PT2H", TimeWindow(NOW, after(2 * HOUR_NS))),
        ("PT2H/2030-05-01T17:30:00Z", TimeWindow(after(-2 * HOUR_NS), NOW)),
        ("now/..", TimeWindow(NOW)),
        ("../now", TimeWindow(BEGINNING, NOW)),
    ],
)
def test_a_time_window_is_parsed_as_in_the_table(text: str, time_window: TimeWindow) -> None:
    assert time_window_from_text(text, NOW) == time_window


@pytest.mark.parametrize(
    ("text", "reason", "sentence"),
    [
        ("until 17:00Z", Reason.TIME_WINDOW_BACKWARDS, "ends at 2030-05-01T17:00:00Z, before it starts at 2030-05-01T17:30:00Z"),
        ("from in 2 hours until now", Reason.TIME_WINDOW_BACKWARDS, "before it starts"),
        ("in 1s/now", Reason.TIME_WINDOW_BACKWARDS, "before it starts"),
        ("last 4000 weeks", Reason.TIME_RANGE, "before 1970"),
        ("next 15000 weeks", Reason.TIME_RANGE, "after April 2262"),
        ("", Reason.TIME_UNREADABLE, "it is empty"),
        ("now", Reason.TIME_UNREADABLE, "is not a time window"),
        ("from now", Reason.TIME_UNREADABLE, "is not a time window"),
        ("from now until", Reason.TIME_UNREADABLE, "is not a time window"),
        ("last", Reason.TIME_UNREADABLE, "is not a duration"),
        ("since", Reason.TIME_UNREADABLE, "is not a time window"),
        ("since 18:00", Reason.TIME_UNREADABLE, "has no time zone"),
        ("/", Reason.TIME_UNREADABLE, "is not an instant"),
        ("now/now/now", Reason.TIME_UNREADABLE, "is not an instant"),
        ("PT1H/PT1H", Reason.TIME_UNREADABLE, "is not an instant"),
        ("../PT1H", Reason.TIME_UNREADABLE, "open start"),
        ("PT1H/..", Reason.TIME_UNREADABLE, "is not an instant"),
    ],
)
def test_an_invalid_time_window_is_refused_with_an_explanation(text: str, reason: Reason, sentence: str) -> None:
    fault = time_window_refusal(text)
    assert fault.reason is reason
    assert sentence in fault.detail


@pytest.mark.parametrize(
    ("time_window", "text"),
    [
        (ALWAYS, "../.."),
        (TimeWindow(NOW), "2030-05-01T17:30:00Z/.."),
        (TimeWindow(BEGINNING, NOW), "../2030-05-01T17:30:00Z"),
        (TimeWindow(NOW, after(1)), "2030-05-01T17:30:00Z/2030-05-01T17:30:00.000000001Z"),
    ],
)
def test_a_time_window_prints_as_an_iso_interval(time_window: TimeWindow, text: str) -> None:
    assert time_window_to_text(time_window) == text
