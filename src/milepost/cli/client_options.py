"""Shared parts of the client commands: connection options, option parsing and error messages."""

import argparse
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from milepost.config.errors import StartFault, UsageFault, cannot_read

if TYPE_CHECKING:  # --help must import neither asyncio nor numpy
    from milepost.client import Client, Credentials
    from milepost.model.places import Place

Read = TypeVar("Read")

URL: Final = "mqtt://127.0.0.1:1883"
PASSWORD_VARIABLE: Final = "MILEPOST_PASSWORD"
RECONNECT_S: Final = 300.0
FOREVER_S: Final = 1e9
"""Effectively without end."""

CONNECTION_HELP: Final = f"""\
The URL is mqtt://, mqtts://, ws:// or wss://[USER:PASSWORD@]HOST[:PORT]; or udp://HOST[:PORT], udp+srv://DOMAIN (DNS SRV),
udp+find:// (multicast discovery of a nearby edge). The password of --user is read from the environment variable
{PASSWORD_VARIABLE}, so that it does not appear in process lists. Over udp an endpoint authenticates with the files that
`milepost trust issue` creates: --ca, --certificate and --key. With --ca authority.pub signatures are verified over every
protocol: messages with an invalid one, and alerts without one, are not shown.
"""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the connection options."""
    group = parser.add_argument_group("connection")
    group.add_argument("--url", default=URL, help=f"URL of the edge (default: {URL})")
    group.add_argument("--id", metavar="NAME", help="endpoint id (default: the id in the certificate, or a random one)")
    group.add_argument("--user", metavar="NAME", help=f"user name; the password is read from {PASSWORD_VARIABLE}")
    group.add_argument(
        "--ca",
        metavar="FILE",
        action="append",
        default=[],
        help="certificate authority: authority.pub for udp and signed messages, PEM for mqtts and wss (default: the system's);"
        " may be repeated for one of each",
    )
    group.add_argument(
        "--certificate", metavar="FILE", type=Path, help="certificate of this endpoint, NAME.cert: for udp, and to sign"
    )
    group.add_argument("--key", metavar="FILE", type=Path, help="private key of this endpoint, NAME.key: for udp, and to sign")


def client_from(typed: argparse.Namespace, place: "Place | None" = None, *, retries_forever: bool = False) -> "Client":
    """Return the client of the edge, not connected yet; with *retries_forever* also the first connection is retried."""
    import os  # noqa: PLC0415
    import ssl  # noqa: PLC0415

    from milepost.client import connect  # noqa: PLC0415
    from milepost.client.urls import is_udp  # noqa: PLC0415

    authority, pem = _authorities(typed.ca)
    if is_udp(typed.url) and place is None:
        raise UsageFault("over udp a session starts with the position of the endpoint: give it with --at LAT,LON")
    try:
        tls = ssl.create_default_context(cafile=pem) if pem and not is_udp(typed.url) else None
    except FileNotFoundError as error:
        raise cannot_read(pem, error) from None
    except ssl.SSLError as error:
        raise UsageFault(f"--ca: {pem} has no certificates in PEM: {error.reason or error}") from None
    password = os.environ.get(PASSWORD_VARIABLE) if typed.user else None
    try:
        return connect(
            typed.url,
            client_id=typed.id,
            user=typed.user,
            password=password,
            tls=tls,
            place=place if is_udp(typed.url) else None,
            ca=_authority_key(authority),
            signed_topics=getattr(typed, "signed_topic", None),
            credentials=_credentials_from(typed, authority),
            connect_within_s=FOREVER_S if retries_forever else 0,
            reconnect_within_s=FOREVER_S if retries_forever else RECONNECT_S,
        )
    except ValueError as fault:
        raise UsageFault(str(fault)) from None


def _authorities(files: list[str]) -> tuple[str, str]:
    """Return the authority.pub and the PEM file among the files of --ca; empty: not given."""
    from milepost.trust.pem import AUTHORITY, title_of  # noqa: PLC0415

    found: dict[bool, str] = {}
    for file in files:
        try:
            is_authority = title_of(Path(file).read_text(errors="replace")) == AUTHORITY
        except OSError as error:
            raise cannot_read(file, error) from None
        if is_authority in found:
            raise UsageFault(
                f"--ca: {found[is_authority]} and {file} are of the same kind: give one authority.pub and one PEM file"
            )
        found[is_authority] = file
    return found.get(True, ""), found.get(False, "")


def _authority_key(authority: str) -> bytes | None:
    if not authority:
        return None
    from milepost.runtime.trust_files import read_authority  # noqa: PLC0415

    return read_authority(Path(authority))


def _credentials_from(typed: argparse.Namespace, authority: str) -> "Credentials | None":
    """Read the key and certificate files of an endpoint; None if none was given."""
    files = {"--ca": authority, "--certificate": typed.certificate, "--key": typed.key}
    if not (typed.certificate or typed.key):
        return None
    if missing := [option for option, file in files.items() if not file]:
        raise UsageFault(f"--ca, --certificate and --key must be given together: {missing[0]} is missing; see `milepost trust`")
    from milepost.client import Credentials  # noqa: PLC0415
    from milepost.runtime.trust_files import read_authority, read_certificate_file, read_key  # noqa: PLC0415

    certificate, keys = read_certificate_file(typed.certificate), read_key(typed.key)
    return Credentials.from_keys(read_authority(Path(authority)), certificate, b"".join(keys))


def read_option(option: str, read: Callable[[str], Read], text: str | None) -> Read | None:
    """Parse the value of an option, None if it was not given; raise a `UsageFault` with the option's name."""
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as fault:
        raise UsageFault(f"{option}: {fault}") from None


def run_client(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the coroutine of a client command; turn client errors into a `StartFault` that says what to do."""
    import asyncio  # noqa: PLC0415

    from milepost.client import EdgeUnreachable, RefusedByEdge  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415

    try:
        return asyncio.run(work())
    except EdgeUnreachable as fault:
        advice = "is an edge running there? Start one with `milepost edge run`, or name another with --url"
        raise StartFault(f"{fault}; {advice}") from None
    except RefusedByEdge as fault:
        raise StartFault(f"the edge refused: {fault}") from None
    except Malformed as fault:
        raise UsageFault(str(fault)) from None
