"""`milepost trust`: create a certificate authority, issue and revoke certificates, and inspect the files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import print_line

if TYPE_CHECKING:  # imports numpy and OpenSSL
    from milepost.model.instants import Instant
    from milepost.runtime.trust_files import KeyFile

_EDGE: Final = "edge"
_SIGNING_ROLES: Final = (_EDGE, "service", "operator")
_DAYS: Final = 365

_EPILOG: Final = """\
Over UDP, edges and endpoints authenticate with certificates that your own certificate authority (CA) signs:
  milepost trust init ca
  milepost trust issue ca edge-3 --edge
  milepost trust issue ca truck-17 --role vehicle
and edges, services and operators sign their alerts, which clients that know the CA verify:
  milepost trust issue ca incidents --service
  milepost trust issue ca control-room --operator

An edge needs its .key and .cert, authority.pub, revoked.list and revoked-signers.list; a service, an operator or an endpoint its
.key and .cert, and authority.pub. authority.key stays with the CA.
"""

_INIT_EPILOG: Final = """\
example:
  milepost trust init ca

It creates these files in the folder, and never overwrites one:
  authority.key          the private key: keep it secret, make a backup, and do not copy it to the machines of edges
  authority.pub          the public key, for edges and endpoints
  revoked.list           the signed revocation list, empty at first
  revoked-signers.list   the part of it that edges publish to their clients: certificates that sign
  issued.jsonl           all issued certificates, one per line
"""

_KEY_EPILOG: Final = """\
example, on the machine of the endpoint:
  milepost trust key truck-17                  creates truck-17.key, which stays there, and truck-17.pub
then on the machine of the CA:
  milepost trust issue ca truck-17 --role vehicle --key truck-17.pub
"""

_ISSUE_EPILOG: Final = """\
examples:
  milepost trust issue ca truck-17 --role vehicle             creates truck-17.key and truck-17.cert
  milepost trust issue ca edge-3 --edge --days 90             for an edge, with a key to sign its messages
  milepost trust issue ca incidents --service                 for the incident engine, with a key to sign its alerts
  milepost trust issue ca control-room --operator             for an operator, with a key to sign with `milepost pub --sign`
  milepost trust issue ca truck-17 --role vehicle --key truck-17.pub
                                                              creates truck-17.cert; the private key stays with the endpoint

NAME is the endpoint id, the only source that the endpoint can publish as. Access rules can match the role (`role` in a rule). The
validity of a certificate starts five minutes before its issue, for edges whose clock is behind.
"""

_SITE_KEY_EPILOG: Final = """\
example:
  milepost trust site-key west.key

Copy the file to all machines of the site, readable by the user of its processes only, and name it in `key` of [site], and in
[[site.neighbours]] and [[hub.sites]] of others that write to this site's log. Start all of them with it together, on a new log:
records without a code of the key are refused.
"""

_REVOKE_EPILOG: Final = """\
examples:
  milepost trust revoke ca truck-17                  all certificates of this endpoint
  milepost trust revoke ca 5f0c6d1be2a94877          the one with this serial number; `milepost trust show ca` prints them

Edges that read revoked.list from this folder end the sessions within a second; copy the file to all other edges, and with it
revoked-signers.list, which they publish to their clients.
"""

_SHOW_EPILOG: Final = """\
examples:
  milepost trust show ca                             the CA and all issued certificates
  milepost trust show truck-17.cert truck-17.key

A certificate is verified with the authority.pub and revoked.list in its folder, if they are there. For a private key its public
key is printed.
"""


def add_to(commands: Commands) -> None:
    """Add `trust` and its subcommands."""
    trust = commands.add_parser(
        "trust",
        help="create keys, issue and revoke certificates",
        description="Create keys, and issue and revoke certificates, for encrypted UDP sessions; see docs/how-to/vehicles.md.",
        epilog=_EPILOG,
    )
    verbs: Commands = trust.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    init = verbs.add_parser("init", help="create a CA", description="Create a certificate authority.", epilog=_INIT_EPILOG)
    init.add_argument("folder", metavar="DIR", type=Path, help="the folder of the CA, created if it does not exist")
    init.set_defaults(run=_init)

    key = verbs.add_parser(
        "key", help="create keys", description="Create the private and the public key of an endpoint.", epilog=_KEY_EPILOG
    )
    key.add_argument("name", metavar="NAME", help="the endpoint id")
    key.add_argument(
        "--edge", "--service", "--operator", action="store_true", dest="signs", help="with a signing key, as these need it"
    )
    _add_out(key)
    key.set_defaults(run=_key)

    _add_issue(verbs)

    site_key = verbs.add_parser(
        "site-key",
        help="create the key of a site's log",
        description="Create the key by which the processes of a site recognise each other's records in its log.",
        epilog=_SITE_KEY_EPILOG,
    )
    site_key.add_argument("file", metavar="FILE", type=Path, help="the new file")
    site_key.set_defaults(run=_site_key)

    revoke = verbs.add_parser("revoke", help="revoke certificates", description="Revoke certificates.", epilog=_REVOKE_EPILOG)
    revoke.add_argument("folder", metavar="DIR", type=Path, help="the folder of the CA")
    revoke.add_argument("targets", metavar="NAME|SERIAL", nargs="+", help="an endpoint id, or a serial number of 16 digits")
    revoke.set_defaults(run=_revoke)

    show = verbs.add_parser(
        "show", help="print keys and certificates", description="Print the content of files.", epilog=_SHOW_EPILOG
    )
    show.add_argument("paths", metavar="FILE|DIR", nargs="+", type=Path, help="a file, or the folder of a CA")
    show.set_defaults(run=_show)


def _add_issue(verbs: Commands) -> None:
    issue = verbs.add_parser("issue", help="issue a certificate", description="Issue a certificate.", epilog=_ISSUE_EPILOG)
    issue.add_argument("folder", metavar="DIR", type=Path, help="the folder of the CA")
    issue.add_argument("name", metavar="NAME", help="the endpoint id")
    role = issue.add_mutually_exclusive_group(required=True)
    role.add_argument("--role", help="the role of the endpoint: 1 to 32 of a-z, 0-9 and -")
    role.add_argument("--edge", action="store_const", const=_EDGE, dest="role", help="the same as --role edge")
    role.add_argument("--service", action="store_const", const="service", dest="role", help="the same as --role service")
    role.add_argument("--operator", action="store_const", const="operator", dest="role", help="the same as --role operator")
    issue.add_argument("--days", metavar="N", type=int, default=_DAYS, help=f"validity in days (default: {_DAYS})")
    issue.add_argument("--key", metavar="FILE", type=Path, help="an existing public key, instead of a new key pair")
    _add_out(issue)
    issue.set_defaults(run=_issue)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path(), help="the folder of the new files (default: .)")


def _init(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import make_authority  # noqa: PLC0415  # imports OpenSSL

    make_authority(typed.folder, _now())
    print_line(f"{typed.folder} is a certificate authority now: keep authority.key secret, and make a backup of it")
    return 0


def _key(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import new_keys, public_keys_of  # noqa: PLC0415  # imports OpenSSL
    from milepost.runtime.trust_files import TrustFileType, write_new  # noqa: PLC0415

    keys = new_keys(signs=typed.signs)
    private, public = _path(typed, ".key"), _path(typed, ".pub")
    write_new(private, TrustFileType.KEY, b"".join(keys))
    write_new(public, TrustFileType.PUBLIC_KEY, b"".join(public_keys_of(keys)))
    print_line(f"created {private}, which stays here, and {public} for the CA: milepost trust issue DIR NAME --key {public}")
    return 0


def _site_key(typed: argparse.Namespace) -> int:
    from secrets import token_bytes  # noqa: PLC0415

    from milepost.eventlog.authenticated import KEY_BYTES  # noqa: PLC0415
    from milepost.runtime.trust_files import TrustFileType, write_new  # noqa: PLC0415  # imports OpenSSL

    write_new(typed.file, TrustFileType.SITE_KEY, token_bytes(KEY_BYTES))
    print_line(f"created {typed.file}: copy it to all machines of the site, and name it in `key` of [site]; keep it secret")
    return 0


def _issue(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import issue_in, new_keys, public_keys_of, serial_text  # noqa: PLC0415  # imports OpenSSL
    from milepost.runtime.trust_files import TrustFileType, write_new  # noqa: PLC0415

    if typed.days < 1:
        raise UsageFault(f"--days {typed.days}: give at least 1")
    private, path = _path(typed, ".key"), _path(typed, ".cert")
    _check_free(path, *([] if typed.key else [private]))
    keys = None if typed.key else new_keys(signs=typed.role in _SIGNING_ROLES)
    public = _given_keys(typed) if keys is None else public_keys_of(keys)
    certificate = issue_in(typed.folder, typed.name, public, role=typed.role, days=typed.days, now=_now())
    if keys is not None:
        write_new(private, TrustFileType.KEY, b"".join(keys))
    write_new(path, TrustFileType.CERTIFICATE, certificate.data)
    created = f"created {path}" if keys is None else f"created {private} and {path}"
    print_line(f"{created}: {certificate.id}, role {certificate.role}, serial {serial_text(certificate.serial)}")
    return 0


def _check_free(*paths: Path) -> None:
    """Refuse files that cannot be created, before a certificate is issued."""
    for path in paths:
        if not path.parent.is_dir():
            raise UsageFault(f"{path.parent} is not a folder: create it, or write to another (--out)")
        if path.exists():
            raise UsageFault(f"{path} exists already: nothing was issued; move it away, or write to another folder (--out)")


def _given_keys(typed: argparse.Namespace) -> "KeyFile":
    from milepost.runtime.trust_files import read_public_key  # noqa: PLC0415  # imports OpenSSL

    keys = read_public_key(typed.key)
    signs = typed.role in _SIGNING_ROLES
    if signs != bool(keys.signing):
        what = f"no signing key: create it with --{typed.role}" if signs else "a signing key, which only signers have"
        raise UsageFault(f"{typed.key} has {what} (milepost trust key)")
    return keys


def _revoke(typed: argparse.Namespace) -> int:
    from milepost.runtime.certificate_authority import revoke_in, serial_text  # noqa: PLC0415  # imports OpenSSL

    new = revoke_in(typed.folder, typed.targets, _now())
    for serial in new:
        print_line(f"{serial_text(serial)} is revoked")
    print_line("running edges that read these lists apply them within a second" if new else "all of these were revoked before")
    return 0


def _show(typed: argparse.Namespace) -> int:
    from milepost.cli.certificate_table import shown_files  # noqa: PLC0415  # imports OpenSSL

    print_line(shown_files(typed.paths, _now()))
    return 0


def _path(typed: argparse.Namespace, ending: str) -> Path:
    """Return the file of an endpoint; slashes in its name are escaped."""
    from milepost.model.endpoints import endpoint_id  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415

    try:
        name = endpoint_id(typed.name)
    except Malformed as fault:
        raise UsageFault(f"{typed.name!r} is not a valid endpoint id: {fault.detail}; choose another name") from None
    return Path(typed.out, name.replace("%", "%25").replace("/", "%2F") + ending)


def _now() -> "Instant":
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415

    return Instant(time_ns())
