"""`milepost passwd`: add a user to a users file, change a password, remove a user."""

import argparse
import sys
from pathlib import Path
from typing import Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import print_line

_EPILOG: Final = """\
examples:
  milepost passwd users ada                    prompts for the password twice
  echo -n "$PASSWORD" | milepost passwd users ada --stdin
  milepost passwd users ada --delete

The file is created if it does not exist, readable by its owner only. Name it in the settings:
  [access]
  users = "users"
A file of mosquitto_passwd can be used and extended, too. Edges read the file at the start and on SIGHUP: a removed user stays
connected, and can log in, until each edge has had the signal.
"""

_IN_EFFECT: Final = "running edges apply it on SIGHUP, each of them"


def add_to(commands: Commands) -> None:
    """Add `passwd`."""
    parser = commands.add_parser(
        "passwd", help="add, change or remove a user", description="Add, change or remove a user of a users file.", epilog=_EPILOG
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the users file")
    parser.add_argument("user", metavar="USER", help="the user name")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--delete", action="store_true", help="remove the user")
    way.add_argument("--stdin", action="store_true", help="read the password from the first line of standard input")
    parser.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.runtime.passwords import check_name, remove_user, set_password  # noqa: PLC0415  # imports OpenSSL

    check_name(typed.user)
    if typed.delete:
        remove_user(typed.file, typed.user)
        print_line(f"{typed.user} is removed from {typed.file}; {_IN_EFFECT}")
        return 0
    is_new = set_password(typed.file, typed.user, _password(is_piped=typed.stdin))
    done = f"is added to {typed.file}" if is_new else f"has a new password in {typed.file}"
    print_line(f"{typed.user} {done}; {_IN_EFFECT}")
    return 0


def _password(*, is_piped: bool) -> bytes:
    """Prompt for the password twice, or read the first line of standard input."""
    if is_piped:
        password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    else:
        from getpass import getpass  # noqa: PLC0415

        try:
            password = getpass("Password: ").encode()
            if getpass("Repeat the password: ").encode() != password:
                raise UsageFault("the two passwords differ: nothing was changed; try again")
        except EOFError:
            raise UsageFault("no password was typed: nothing was changed; use --stdin to read it from a pipe") from None
    if not password:
        raise UsageFault("the password is empty: nothing was changed; give at least one character")
    return password
