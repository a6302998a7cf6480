"""The command as a separate process: imports, output and exit status."""

import subprocess
import sys
from pathlib import Path

import pytest

from house.rules.tree import ROOT

HEAVY = {"asyncio", "ssl", "hashlib", "h11", "websockets", "jsonschema_rs"}


def run(*typed: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([sys.executable, "-m", "milepost", *typed], input=given, capture_output=True, check=False, timeout=60)


def imported(program: str, watched: set[str]) -> str:
    """Return the watched modules that a program imports."""
    program = f"import sys\n{program}\nsys.stderr.write(' '.join({watched!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stderr


@pytest.mark.parametrize("typed", [["--help"], ["edge", "run", "--help"], ["passwd", "--help"]])
def test_help_imports_nothing_heavy(typed: list[str]) -> None:
    program = f"from milepost.cli.main import main\ntry:\n    main({typed!r})\nexcept SystemExit:\n    pass"
    assert imported(program, {*HEAVY, "numpy"}) == ""


@pytest.mark.parametrize(
    ("modules", "light"),
    [
        ("milepost.config.settings, milepost.runtime.structured_log, milepost.runtime.metrics", HEAVY),
        ("milepost.listeners.websocket, milepost.listeners.http", {"asyncio", "ssl", "numpy"}),
    ],
)
def test_nothing_is_imported_before_it_is_needed(modules: str, light: set[str]) -> None:
    assert imported(f"import {modules}", light) == ""


def test_the_check_for_imports_finds_an_import() -> None:
    assert imported("import milepost.listeners.http", HEAVY) == "h11"


def test_the_example_file_is_valid() -> None:
    done = run("edge", "check", "--config", str(ROOT / "milepost.example.toml"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"mqtt       127.0.0.1:1883 (tcp)" in done.stdout


def test_a_bad_file_is_one_line_and_status_2(tmp_path: Path) -> None:
    file = tmp_path / "milepost.toml"
    file.write_text('[mqtt]\nreceive_max = "x"\n')
    done = run("edge", "run", "--config", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"milepost: {file}, line 2: [mqtt] receive_max".encode())
    assert done.stderr.count(b"\n") == 1


def test_a_missing_file_is_reported_with_its_key_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "milepost.toml"
    file.write_text('[access]\nusers = "users"\n')
    done = run("edge", "check", "--config", str(file))
    assert (done.returncode, done.stderr) == (
        2,
        f"milepost: [access] users: {tmp_path}/users does not exist: correct the path, or create the file\n".encode(),
    )


@pytest.mark.parametrize(
    ("users", "schema", "complaint"),
    [
        ("ada:plain", "{}", "users, line 1: the password of 'ada' is not hashed"),
        ("", "{", "schema.json: "),
        ("", '{"type": 3}', "schema.json: "),
    ],
)
def test_the_content_of_named_files_is_checked(tmp_path: Path, users: str, schema: str, complaint: str) -> None:
    file = tmp_path / "milepost.toml"
    file.write_text('[access]\nusers = "users"\n[[rules.payload]]\ntopic = "a"\nschema = "schema.json"\n')
    (tmp_path / "users").write_text(users)
    (tmp_path / "schema.json").write_text(schema)
    done = run("edge", "check", "--config", str(file))
    assert done.returncode == 2
    assert complaint in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_valid_named_files_are_in_the_summary(tmp_path: Path) -> None:
    file = tmp_path / "milepost.toml"
    file.write_text('[access]\nusers = "users"\n[[rules.payload]]\ntopic = "a"\nschema = "schema.json"\n')
    (tmp_path / "users").write_text("ada:$7$101$c2FsdA==$aGFzaA==\n")
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    done = run("edge", "check", "--config", str(file))
    assert (done.returncode, done.stderr) == (0, b"")
    assert f"users      1 user in {tmp_path}/users\n".encode() in done.stdout
    assert f"payload    a must be JSON valid under {tmp_path}/schema.json\n".encode() in done.stdout


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "milepost.toml"
    file.write_bytes(b"\xff\xfe")
    done = run("edge", "check", "--config", str(file))
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_a_user_is_added_changed_and_removed(tmp_path: Path) -> None:
    file = str(tmp_path / "users")
    runs = [
        run("passwd", file, "ada", "--stdin", given=b"secret\n"),
        run("passwd", file, "ada", "--stdin", given=b"other"),
        run("passwd", file, "ada", "--delete"),
        run("passwd", file, "ada", "--delete"),
    ]
    assert [done.returncode for done in runs] == [0, 0, 0, 2]
    in_effect = "running edges apply it on SIGHUP, each of them"
    assert runs[0].stdout == f"ada is added to {file}; {in_effect}\n".encode()
    assert runs[1].stdout == f"ada has a new password in {file}; {in_effect}\n".encode()
    assert runs[2].stdout == f"ada is removed from {file}; {in_effect}\n".encode()
    assert b"there is no user 'ada'" in runs[3].stderr


def test_a_closed_pipe_is_not_an_error() -> None:
    line = f"{sys.executable} -m milepost edge check --config {ROOT}/milepost.example.toml | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
