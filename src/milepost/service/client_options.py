"""What `milepost pub` and `milepost sub` share: how to reach the edge, how options are read, and how faults are told."""

import argparse
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from milepost.service.faults import StartFault, UsageFault, cannot_read

if TYPE_CHECKING:  # asyncio and numpy are not wanted for --help
    from milepost.client import Edge

Read = TypeVar("Read")

URL: Final = "mqtt://127.0.0.1:1883"
PASSWORD_VARIABLE: Final = "MILEPOST_PASSWORD"

CONNECTION_HELP: Final = f"""\
The URL is mqtt://, mqtts://, ws:// or wss://[USER:PASSWORD@]HOST[:PORT]. A password given with --user is taken from the
environment variable {PASSWORD_VARIABLE}, so that it is seen in no list of processes.
"""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to connect."""
    group = parser.add_argument_group("connection")
    group.add_argument("--url", default=URL, help=f"the edge; without it {URL}")
    group.add_argument("--id", metavar="NAME", help="the name of this endpoint; without it, a new one")
    group.add_argument("--user", metavar="NAME", help=f"the user name; the password is in {PASSWORD_VARIABLE}")
    group.add_argument("--ca", metavar="FILE", help="whose certificates to trust (PEM), instead of those the system trusts")


def edge_from(typed: argparse.Namespace) -> "Edge":
    """The edge that the options name, not connected yet; one that cannot be reached at first is not waited for."""
    import os  # noqa: PLC0415
    import ssl  # noqa: PLC0415

    from milepost.client import connect  # noqa: PLC0415

    try:
        tls = ssl.create_default_context(cafile=typed.ca) if typed.ca else None
    except FileNotFoundError as error:
        raise cannot_read(typed.ca, error) from None
    except ssl.SSLError as error:
        raise UsageFault(f"--ca: {typed.ca} holds no certificates in PEM: {error.reason or error}") from None
    password = os.environ.get(PASSWORD_VARIABLE) if typed.user else None
    try:
        return connect(typed.url, client_id=typed.id, user=typed.user, password=password, tls=tls, connect_within_s=0)
    except ValueError as fault:
        raise UsageFault(str(fault)) from None


def read_option(option: str, read: Callable[[str], Read], text: str | None) -> Read | None:
    """What an option says; nothing if it was not given. What cannot be read is told with the option's name."""
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as fault:
        raise UsageFault(f"{option}: {fault}") from None


def carry_out(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run what talks to an edge; each fault becomes one line that says what to do next."""
    import asyncio  # noqa: PLC0415

    from milepost.client import EdgeUnreachable, RefusedByEdge  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415

    try:
        return asyncio.run(work())
    except EdgeUnreachable as fault:
        raise StartFault(f"{fault}; is an edge running there? `milepost edge run` starts one, --url names another") from None
    except RefusedByEdge as fault:
        raise StartFault(f"the edge refused: {fault}") from None
    except Malformed as fault:
        raise UsageFault(str(fault)) from None
