"""The users file on disk, also with files of mosquitto_passwd."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.config.errors import UsageFault
from milepost.runtime.passwords import Users, remove_user, set_password
from parts import need


def test_a_password_is_set_checked_changed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert set_password(file, "ada", b"secret")
    assert set_password(file, "bob", "pässword".encode())
    users = Users.load(file)
    assert users.check("ada", b"secret")
    assert users.check("bob", "pässword".encode())
    assert not users.check("ada", b"Secret")
    assert not set_password(file, "ada", b"other")
    assert users.check("ada", b"secret")  # the file as it was read
    users.reload(file)
    assert not users.check("ada", b"secret")
    assert users.check("ada", b"other")
    remove_user(file, "ada")
    users.reload(file)
    assert not users.check("ada", b"other")


def test_the_users_file_is_readable_by_its_owner_only_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# ours\n")
    file.chmod(0o644)
    set_password(file, "ada", b"secret")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["users"]


def test_other_lines_and_symbolic_links_are_kept(tmp_path: Path) -> None:
    file, link = tmp_path / "real", tmp_path / "link"
    others = "# people\n\x0c \u2028\n\nbob:$7$101$c2FsdA==$aGFzaA==\r\n"
    file.write_text(others, newline="")
    link.symlink_to(file)
    set_password(link, "ada", b"secret")
    remove_user(link, "ada")
    assert link.is_symlink()
    assert file.read_bytes() == others.encode()


def test_a_users_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users"
    set_password(file, "ada", b"secret")
    users = Users.load(file)
    file.write_text("ada:plain\n")
    with pytest.raises(UsageFault, match="line 1"):
        users.reload(file)
    assert users.check("ada", b"secret")
    with pytest.raises(UsageFault, match="does not exist"):
        Users.load(tmp_path / "nobody")
    with pytest.raises(UsageFault, match="does not exist"):
        set_password(tmp_path / "nowhere" / "users", "ada", b"secret")
    file.write_bytes(b"\xff")
    with pytest.raises(UsageFault, match="not UTF-8"):
        users.reload(file)


def test_concurrent_changes_lose_no_user(tmp_path: Path) -> None:
    file = tmp_path / "users"
    command = [sys.executable, "-m", "milepost", "passwd", str(file)]
    running = [
        subprocess.Popen([*command, f"user-{n}", "--stdin"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for n in range(6)
    ]
    for number, one in enumerate(running):
        one.communicate(f"secret-{number}".encode(), timeout=60)
    users = Users.load(file)
    assert [users.check(f"user-{n}", f"secret-{n}".encode()) for n in range(6)] == [True] * 6


def test_root_keeps_the_owner_of_the_file(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away; fix: run the tests as root")
    file = tmp_path / "users"
    set_password(file, "ada", b"secret")
    os.chown(file, 1234, 1234)
    set_password(file, "bob", b"secret")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1234)


def test_a_users_file_of_mosquitto_works(tmp_path: Path) -> None:
    tool = need("mosquitto_passwd", debian="mosquitto")
    file = tmp_path / "users"
    subprocess.run([tool, "-c", "-b", str(file), "ada", "secret"], check=True, capture_output=True, timeout=60)
    set_password(file, "bob", b"other")
    users = Users.load(file)
    assert users.check("ada", b"secret")
    assert not users.check("ada", b"other")
    assert users.check("bob", b"other")
