"""What an edge refused and let in between two looks (M28)."""

from milepost_experiments.papers.mercury.forgery import Tried, let_in_between, refused_between

from milepost_experiments.papers.load.edges import Look


def look(**figures: float) -> Look:
    """Figures by name; after two underscores the reason."""
    named = {}
    for name, value in figures.items():
        figure, _, reason = name.partition("__")
        named[f'{figure}{{reason="{reason}"}}' if reason else figure] = value
    return Look(0.0, 0.0, 0, named)


BEFORE = look(milepost_refused_total__REPLAYED=3, milepost_refused_total__MALFORMED=1, milepost_reports_total=10)


def test_only_what_was_refused_meanwhile_counts() -> None:
    after = look(milepost_refused_total__REPLAYED=5, milepost_refused_total__MALFORMED=1, milepost_refused_total__SEAL_BROKEN=2)
    assert refused_between(BEFORE, after) == {"REPLAYED": 2, "SEAL_BROKEN": 2}


def test_a_report_a_message_a_session_and_an_alert_all_got_through() -> None:
    after = look(
        milepost_reports_total=11, milepost_messages_accepted_total=1, milepost_sessions_opened_total=1, milepost_alerts_total=1
    )
    assert let_in_between(BEFORE, after) == 4


def test_what_is_neither_refused_nor_let_in_is_for_no_reason() -> None:
    assert Tried("x", 10, {"REPLAYED": 6, "MALFORMED": 1}, 1).unheard == 2
