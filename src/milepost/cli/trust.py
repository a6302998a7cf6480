"""`milepost trust`: create a certificate authority, issue and revoke certificates, and inspect the files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.parsers import Commands
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import say

if TYPE_CHECKING:  # imports numpy and OpenSSL
    from milepost.model.instants import Instant
    from milepost.runtime.trust_files import KeyFile

_EDGE: Final = "edge"
_DAYS: Final = 365

_EPILOG: Final = """\
Who may speak to an edge sealed is decided by certificates that an authority of yours signs. A first certificate in three steps:
  milepost trust init ca
  milepost trust issue ca edge-3 --edge
  milepost trust issue ca truck-17 --role vehicle

Each edge gets its own .key and .cert, authority.pub and revoked.list; each endpoint its .key and .cert, and authority.pub.
authority.key stays where it is.
"""

_INIT_EPILOG: Final = """\
example:
  milepost trust init ca

makes these files in the folder, and never writes over any:
  authority.key   the private key: keep it secret, keep a copy, and keep both off the machines of edges
  authority.pub   what edges and endpoints know the authority by
  revoked.list    what was taken back, signed; empty so far
  issued.jsonl    every certificate it issues, one line each
"""

_KEY_EPILOG: Final = """\
example, on the machine of the endpoint:
  milepost trust key truck-17                  makes truck-17.key, which stays there, and truck-17.pub
then where the authority is:
  milepost trust issue ca truck-17 --role vehicle --key truck-17.pub
"""

_ISSUE_EPILOG: Final = """\
examples:
  milepost trust issue ca truck-17 --role vehicle             makes truck-17.key and truck-17.cert
  milepost trust issue ca edge-3 --edge --days 90             for an edge: it can also sign what it says
  milepost trust issue ca truck-17 --role vehicle --key truck-17.pub
                                                              makes truck-17.cert; the private key stays where it is

NAME is the endpoint's id: it can speak for no other. The role is what access rules go by (`role` in a rule). A certificate
begins five minutes ago, so that an edge whose clock is behind takes it too.
"""

_REVOKE_EPILOG: Final = """\
examples:
  milepost trust revoke ca truck-17                  all certificates of that name
  milepost trust revoke ca 5f0c6d1be2a94877          the one with this serial number, which `milepost trust show ca` tells

Edges that read revoked.list from this folder notice within a second and end the sessions; copy the file to the others.
"""

_SHOW_EPILOG: Final = """\
examples:
  milepost trust show ca                             the authority and all it issued
  milepost trust show truck-17.cert truck-17.key

A certificate is judged by the authority.pub and revoked.list that lie beside it, if they do. Private keys are never shown, but
the public keys that belong to them.
"""


def add_to(commands: Commands) -> None:
    """Add `trust` and its verbs."""
    trust = commands.add_parser(
        "trust", help="keys and certificates", description="Keys and certificates for sealed sessions.", epilog=_EPILOG
    )
    verbs: Commands = trust.add_subparsers(title="verbs", metavar="VERB", required=True)

    init = verbs.add_parser("init", help="make an authority", description="Make an authority.", epilog=_INIT_EPILOG)
    init.add_argument("folder", metavar="DIR", type=Path, help="where to; made if it is not there")
    init.set_defaults(run=_init)

    key = verbs.add_parser(
        "key", help="make keys", description="Make private and public keys of an endpoint.", epilog=_KEY_EPILOG
    )
    key.add_argument("name", metavar="NAME", help="the endpoint's id")
    key.add_argument("--edge", action="store_true", help="with a signing key, as an edge needs it")
    _add_out(key)
    key.set_defaults(run=_key)

    _add_issue(verbs)

    revoke = verbs.add_parser("revoke", help="take certificates back", description="Revoke certificates.", epilog=_REVOKE_EPILOG)
    revoke.add_argument("folder", metavar="DIR", type=Path, help="the authority's folder")
    revoke.add_argument("wanted", metavar="NAME|SERIAL", nargs="+", help="an endpoint's id, or a serial number of 16 digits")
    revoke.set_defaults(run=_revoke)

    show = verbs.add_parser("show", help="say what files hold", description="Say what files hold.", epilog=_SHOW_EPILOG)
    show.add_argument("paths", metavar="FILE|DIR", nargs="+", type=Path, help="a file, or an authority's folder")
    show.set_defaults(run=_show)


def _add_issue(verbs: Commands) -> None:
    issue = verbs.add_parser("issue", help="issue a certificate", description="Issue a certificate.", epilog=_ISSUE_EPILOG)
    issue.add_argument("folder", metavar="DIR", type=Path, help="the authority's folder")
    issue.add_argument("name", metavar="NAME", help="the endpoint's id")
    role = issue.add_mutually_exclusive_group(required=True)
    role.add_argument("--role", help="what it is: 1 to 32 of a-z, 0-9 and -")
    role.add_argument("--edge", action="store_const", const=_EDGE, dest="role", help="the same as --role edge")
    issue.add_argument("--days", metavar="N", type=int, default=_DAYS, help=f"for how long it holds; {_DAYS} unless told")
    issue.add_argument("--key", metavar="FILE", type=Path, help="the endpoint's public key, instead of making a pair")
    _add_out(issue)
    issue.set_defaults(run=_issue)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path(), help="where to; here unless told")


def _init(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import make_authority  # noqa: PLC0415  # imports OpenSSL

    make_authority(typed.folder, _now())
    say(f"{typed.folder} is an authority now: keep authority.key secret, and a copy of it")
    return 0


def _key(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import new_keys, public_keys_of  # noqa: PLC0415  # imports OpenSSL
    from milepost.runtime.trust_files import Kind, write_new  # noqa: PLC0415

    keys = new_keys(signs=typed.edge)
    private, public = _path(typed, ".key"), _path(typed, ".pub")
    write_new(private, Kind.KEY, b"".join(keys))
    write_new(public, Kind.PUBLIC_KEY, b"".join(public_keys_of(keys)))
    say(f"{private} is made, and stays here; {public} is for the authority: milepost trust issue DIR NAME --key {public}")
    return 0


def _issue(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import issue_in, new_keys, public_keys_of, serial_text  # noqa: PLC0415  # imports OpenSSL
    from milepost.runtime.trust_files import Kind, write_new  # noqa: PLC0415

    if typed.days < 1:
        raise UsageFault(f"--days {typed.days}: give at least 1")
    private, path = _path(typed, ".key"), _path(typed, ".cert")
    _check_free(path, *([] if typed.key else [private]))
    keys = None if typed.key else new_keys(signs=typed.role == _EDGE)
    public = _their_keys(typed) if keys is None else public_keys_of(keys)
    certificate = issue_in(typed.folder, typed.name, public, role=typed.role, days=typed.days, now=_now())
    if keys is not None:
        write_new(private, Kind.KEY, b"".join(keys))
    write_new(path, Kind.CERTIFICATE, certificate.data)
    made = f"{path} is made" if keys is None else f"{private} and {path} are made"
    say(f"{made}: {certificate.id}, {certificate.role}, serial {serial_text(certificate.serial)}")
    return 0


def _check_free(*paths: Path) -> None:
    """Refuse files that cannot be created, before a certificate is issued."""
    for path in paths:
        if not path.parent.is_dir():
            raise UsageFault(f"{path.parent} is no folder: make it, or write elsewhere (--out)")
        if path.exists():
            raise UsageFault(f"{path} is there already: nothing was issued; move it away, or write elsewhere (--out)")


def _their_keys(typed: argparse.Namespace) -> "KeyFile":
    from milepost.runtime.trust_files import read_public_key  # noqa: PLC0415  # imports OpenSSL

    keys = read_public_key(typed.key)
    if (typed.role == _EDGE) != bool(keys.signing):
        what = "no signing key: make it with --edge" if typed.role == _EDGE else "a signing key, which only an edge has"
        raise UsageFault(f"{typed.key} has {what} (milepost trust key)")
    return keys


def _revoke(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import revoke_in, serial_text  # noqa: PLC0415  # imports OpenSSL

    new = revoke_in(typed.folder, typed.wanted, _now())
    for serial in new:
        say(f"{serial_text(serial)} is revoked")
    say("running edges that read this revoked.list notice within a second" if new else "all of that was revoked before")
    return 0


def _show(typed: argparse.Namespace) -> int:
    from milepost.cli.certificate_table import shown_files  # noqa: PLC0415  # imports OpenSSL

    say(shown_files(typed.paths, _now()))
    return 0


def _path(typed: argparse.Namespace, ending: str) -> Path:
    """Return the file of an endpoint; slashes in its name are escaped."""
    from milepost.model.endpoints import endpoint_id  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415

    try:
        name = endpoint_id(typed.name)
    except Malformed as fault:
        raise UsageFault(f"{typed.name!r} is no endpoint id: {fault.detail}; choose another name") from None
    return Path(typed.out, name.replace("%", "%25").replace("/", "%2F") + ending)


def _now() -> "Instant":
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415

    return Instant(time_ns())
