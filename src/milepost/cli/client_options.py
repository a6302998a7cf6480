"""Shared parts of the client commands: connection options, option parsing and error messages."""

import argparse
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from milepost.config.errors import StartFault, UsageFault, cannot_read

if TYPE_CHECKING:  # --help must import neither asyncio nor numpy
    from milepost.client import Edge, Trust
    from milepost.model.places import Place

Read = TypeVar("Read")

URL: Final = "mqtt://127.0.0.1:1883"
PASSWORD_VARIABLE: Final = "MILEPOST_PASSWORD"
RECONNECT_S: Final = 300.0
ALWAYS_S: Final = 1e9
"""Effectively without end."""

CONNECTION_HELP: Final = f"""\
The URL is mqtt://, mqtts://, ws:// or wss://[USER:PASSWORD@]HOST[:PORT]; or udp://HOST[:PORT], udp+srv://DOMAIN (by DNS),
udp+find:// (whichever edge answers nearby). A password given with --user is taken from the environment variable
{PASSWORD_VARIABLE}, so that it is seen in no list of processes. Over udp the files of `milepost trust` say who one is.
"""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the connection options."""
    group = parser.add_argument_group("connection")
    group.add_argument("--url", default=URL, help=f"the edge; without it {URL}")
    group.add_argument("--id", metavar="NAME", help="the name of this endpoint; without it that of the certificate, or a new one")
    group.add_argument("--user", metavar="NAME", help=f"the user name; the password is in {PASSWORD_VARIABLE}")
    group.add_argument("--ca", metavar="FILE", help="whose certificates to trust (PEM), instead of those the system trusts")
    group.add_argument("--authority", metavar="FILE", type=Path, help="udp: the authority's public key, authority.pub")
    group.add_argument("--certificate", metavar="FILE", type=Path, help="udp: this endpoint's certificate, NAME.cert")
    group.add_argument("--key", metavar="FILE", type=Path, help="udp: its private key, NAME.key")


def edge_from(typed: argparse.Namespace, place: "Place | None" = None, *, keeps_trying: bool = False) -> "Edge":
    """Return the client of the edge, not connected yet; with *keeps_trying* it retries for ever, also the first connection."""
    import os  # noqa: PLC0415
    import ssl  # noqa: PLC0415

    from milepost.client import connect  # noqa: PLC0415
    from milepost.client.urls import is_udp  # noqa: PLC0415

    if is_udp(typed.url) and place is None:
        raise UsageFault("over udp a session begins with where this endpoint is: say it with --at LAT,LON")
    try:
        tls = ssl.create_default_context(cafile=typed.ca) if typed.ca else None
    except FileNotFoundError as error:
        raise cannot_read(typed.ca, error) from None
    except ssl.SSLError as error:
        raise UsageFault(f"--ca: {typed.ca} holds no certificates in PEM: {error.reason or error}") from None
    password = os.environ.get(PASSWORD_VARIABLE) if typed.user else None
    try:
        return connect(
            typed.url,
            client_id=typed.id,
            user=typed.user,
            password=password,
            tls=tls,
            place=place if is_udp(typed.url) else None,
            trust=_trust_from(typed),
            connect_within_s=ALWAYS_S if keeps_trying else 0,
            reconnect_within_s=ALWAYS_S if keeps_trying else RECONNECT_S,
        )
    except ValueError as fault:
        raise UsageFault(str(fault)) from None


def _trust_from(typed: argparse.Namespace) -> "Trust | None":
    """Read the key and certificate files; None if none was given."""
    files = (typed.authority, typed.certificate, typed.key)
    if not any(files):
        return None
    if not all(files):
        raise UsageFault("--authority, --certificate and --key come together: milepost trust makes the three files")
    from milepost.client import Trust  # noqa: PLC0415
    from milepost.runtime.trust_files import read_authority, read_certificate_file, read_key  # noqa: PLC0415

    return Trust(read_authority(typed.authority), read_certificate_file(typed.certificate), read_key(typed.key).static)


def read_option(option: str, read: Callable[[str], Read], text: str | None) -> Read | None:
    """Parse the value of an option, None if it was not given; raise a `UsageFault` with the option's name."""
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as fault:
        raise UsageFault(f"{option}: {fault}") from None


def carry_out(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the coroutine of a client command; turn client errors into a `StartFault` that says what to do."""
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
