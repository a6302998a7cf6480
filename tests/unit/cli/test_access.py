"""`milepost access explain`: verdict, deciding rule and limits, as an edge decides."""

from pathlib import Path

import pytest

from milepost.cli.main import main

RULES = """
[[access.rules]]
allow = true
action = "send"
topics = "Alert/#"
role = "operator"
priority = "emergency"
radius_m = 3000

[[access.rules]]
allow = false
action = "subscribe"
topics = "secret/#"
"""
NEAR = ("--to", "circle 40.7608,-111.891 2000", "--at", "40.76,-111.9")


def ask(capsys: pytest.CaptureFixture[str], *typed: str) -> tuple[int, list[str]]:
    status = main(["access", "explain", *typed])
    return status, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("typed", "status", "line"),
    [
        (("ada", "publish", "fleet/1"), 0, "publish: the default for publish (allow publish #)"),
        (("", "direct", "chat"), 0, "direct: the default for direct (allow direct #)"),
        (("ada", "publish", "chat", "--priority", "emergency"), 1, "  priority at most safety: not met"),
        (("ada", "publish", "Emergency"), 0, "  priority at most emergency: met"),
        (("-", "publish", "Emergency"), 1, "publish: denied, 284 IDENTITY_NOT_PROVEN"),
        (
            ("ada", "publish", "Alert/Ice"),
            1,
            "publish: denied, 220 NOT_ALLOWED: the default for alert topics (deny publish Alert/#)",
        ),
        (("ada", "broadcast", "chat"), 1, "broadcast: denied, 220 NOT_ALLOWED: the default for broadcast (deny broadcast #)"),
        (("-", "geocast", "ice"), 1, "geocast: denied, 284 IDENTITY_NOT_PROVEN"),
        (("ada", "geocast", "ice"), 0, "  valid_s at most 3600 s: not checked, give --valid-for"),
        (("ada", "geocast", "ice", "--valid-for", "2h"), 1, "  valid_s at most 3600 s: not met, the message is valid for 7200 s"),
        (("ada", "geocast", "ice", *NEAR), 0, "  within_m at most 5000 m from the position of the client"),
        (("ada", "geocast", "ice", *NEAR[:2], "--at", "41,-111.9"), 1, "  within_m at most 5000 m from the position"),
        (("ada", "publish", "$SYS/x"), 1, "publish: denied, 221 TOPIC_RESERVED"),
        (("ada", "subscribe", "fleet/#"), 0, "no rule denies it"),
    ],
)
def test_the_defaults_are_explained(capsys: pytest.CaptureFixture[str], typed: tuple[str, ...], status: int, line: str) -> None:
    found, lines = ask(capsys, *typed)
    assert found == status
    assert lines[0].startswith(f"{'denied' if status else 'allowed'}: {typed[1]} on {typed[2]} by ")
    assert any(one.startswith(line) for one in lines[1:]), lines


def test_the_rules_of_a_file_are_explained_by_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(RULES)
    config = ("--config", str(path), "--role", "operator", "--priority", "emergency")
    rule = "rule 1 (allow send Alert/# role 'operator' radius_m 3000 priority emergency)"
    assert ask(capsys, "-", "geocast", "Alert", *NEAR, *config) == (
        0,
        [
            "allowed: geocast on Alert by role operator",
            f"publish: {rule}",
            "  priority at most emergency: met",
            "  radius_m at most 3000 m: met",
            f"geocast: {rule}",
            "  priority at most emergency: met",
            "  radius_m at most 3000 m: met",
        ],
    )
    status, lines = ask(capsys, "-", "geocast", "Alert", "--to", "circle 40.7608,-111.891 4000", *config)
    assert (status, "not met" in lines[-1]) == (1, True)
    status, lines = ask(capsys, "ada", "subscribe", "secret/plans", *config[:2])
    assert (status, "rule 2" in lines[1]) == (1, True)


@pytest.mark.parametrize(
    "typed", [("ada", "publish", "a/#"), ("ada", "publish", "a", "--to", "b"), ("ada", "geocast", "a", "--to", "x")]
)
def test_a_question_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str], typed: tuple[str, ...]) -> None:
    assert ask(capsys, *typed) == (2, [])
