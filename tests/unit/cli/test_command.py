"""The command line, run inside this process."""

import os
import signal
import sys

import pytest

import milepost
from milepost.cli import edge, passwd
from milepost.cli import main as command
from milepost.config.errors import StartFault, UsageFault, cannot_listen, cannot_store


def status_of(*typed: str) -> int:
    try:
        return command.main(typed)
    except SystemExit as end:  # argparse ends the process itself
        return end.code if isinstance(end.code, int) else 1


@pytest.mark.parametrize("typed", [(), ("edge",), ("edge", "run"), ("edge", "check"), ("passwd",)])
def test_help_has_examples(typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*typed, "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {' '.join(('milepost', *typed))}")
    assert typed == ("edge",) or "example" in text


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ((), "milepost: the following arguments are required: COMMAND; see `milepost --help`"),
        (("edge",), "milepost edge: the following arguments are required: SUBCOMMAND; see `milepost edge --help`"),
        (("egde",), "milepost: argument COMMAND: invalid choice: 'egde'; did you mean 'edge'? See `milepost --help`"),
        (("sbu",), "invalid choice: 'sbu'; did you mean 'sub'?"),
        (("edge", "chek"), "milepost edge: argument SUBCOMMAND: invalid choice: 'chek'; did you mean 'check'?"),
        (("zzz",), "invalid choice: 'zzz'; choose from edge, hub, "),
        (
            ("pub", "-t", "a", "-m", "b", "--priority", "safty"),
            "argument --priority: invalid choice: 'safty'; did you mean 'safety'",
        ),
        (("edge", "check"), "milepost edge check: the following arguments are required: --config"),
        (("edge", "check", "--conf", "x"), "required: --config"),
        (("edge", "check", "--config", "/no/such/file"), "milepost: /no/such/file does not exist: correct the path"),
        (("edge", "run", "--listen", "1883"), "milepost: --listen: address '1883' is not HOST:PORT"),
        (("edge", "run", "--data", ""), "milepost: --data: data is empty"),
        (("passwd", "users", "a:b"), "milepost: 'a:b' is not a valid user name"),
        (("passwd", "users", "ada", "--delete", "--stdin"), "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    typed: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*typed) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert complaint in output.err


@pytest.mark.parametrize(
    ("fault", "status", "expected"),
    [
        (StartFault("storage is locked: stop the other"), 1, "milepost: storage is locked: stop the other\n"),
        (UsageFault("bad file"), 2, "milepost: bad file\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_fault_becomes_one_line_and_an_exit_status(
    fault: BaseException, status: int, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise fault

    monkeypatch.setattr(edge, "_check", fail)
    assert status_of("edge", "check", "--config", "x") == status
    assert capsys.readouterr().err == expected


def test_numpy_is_limited_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    status_of("--help")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [(["a", "b"], "the two passwords differ"), (["", ""], "the password is empty"), ([], "no password was typed")],
)
def test_a_password_is_typed_twice(typed: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(prompt: str) -> str:
        if not typed:
            raise EOFError
        return typed.pop(0)

    monkeypatch.setattr("getpass.getpass", ask)
    with pytest.raises(UsageFault, match=complaint):
        passwd._password(is_piped=False)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (98, "is in use by another process"),
        (13, "needs privileges"),
        (99, "is not an address of this machine"),
        (1, "cannot listen at"),
    ],
)
def test_an_address_that_cannot_be_bound_is_reported_with_advice(number: int, expected: str) -> None:
    fault = cannot_listen("h:1", OSError(number, "x"))
    assert expected in str(fault)
    assert fault.status == 1


def test_an_unusable_data_folder_is_reported_with_advice() -> None:
    fault = cannot_store("data", "locked")
    assert fault.status == 1
    assert str(fault).startswith("cannot store data in data: locked; ")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert capsys.readouterr().out == f"milepost {milepost.__version__}\n"


SYDNEY = "-33.87,151.2"


@pytest.mark.parametrize(
    ("typed", "option", "value"),
    [
        (("pub", "-t", "a", "-m", "x"), "--place", SYDNEY),
        (("pub", "-t", "a", "-m", "x"), "--at", SYDNEY),
        (("pub", "-t", "a", "-m", "x"), "--to-area", f"circle {SYDNEY} 500"),
        (("pub", "-t", "a", "-m", "x"), "--within", f"circle {SYDNEY} 500"),
        (("sub",), "--at", "-.5,-151.2"),
        (("sub",), "--area", f"circle {SYDNEY} 500"),
        (("agent", "run"), "--at", SYDNEY),
        (("pipeline", "search"), "--area", f"circle {SYDNEY} 500"),
        (("pipeline", "archive", "files", "reports"), "--area", f"circle {SYDNEY} 500"),
    ],
)
def test_a_place_may_have_a_negative_latitude(typed: tuple[str, ...], option: str, value: str) -> None:
    found = vars(command.make_parser().parse_args([*typed, option, value]))
    assert found[option.strip("-").replace("-", "_")] == value


def test_a_hyphen_and_a_letter_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("pub", "-t", "a", "-m", "x", "--place", "-t") == 2
    assert "argument --place: expected one argument" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "needed"), [(("demo",), "demo"), (("paper", "mercury", "--quick"), "paper")])
def test_an_experiment_without_its_extra_names_the_extra(
    typed: tuple[str, ...], needed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("milepost_experiments.demo.run", "milepost_experiments.papers.mercury.evaluation"):
        monkeypatch.setitem(sys.modules, name, None)  # what the import system does for a module that is not there
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert status_of(*typed) == 1
    output = capsys.readouterr().err
    assert output.startswith(f"milepost: milepost {needed} needs the extra 'experiments'")
    assert output.count("\n") == 1
