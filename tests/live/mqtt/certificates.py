"""A certificate authority for one test run, made with openssl: a server on 127.0.0.1, a client, and an untrusted authority."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from parts import need

EXTENSIONS = """
[server]
subjectAltName = IP:127.0.0.1, DNS:localhost
extendedKeyUsage = serverAuth
[client]
extendedKeyUsage = clientAuth
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files; `stranger_*` is signed by an untrusted certificate authority."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    stranger: Path
    stranger_key: Path


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(parents=True)
    (folder / "extensions.cnf").write_text(EXTENSIONS)
    ca, ca_key = _make_authority(folder, "ca")
    other, other_key = _make_authority(folder, "other")
    return Certificates(
        ca,
        *_make_signed(folder, "server", "localhost", ca, ca_key),
        *_make_signed(folder, "client", "test-vehicle", ca, ca_key),
        *_make_signed(folder, "client", "stranger", other, other_key),
    )


def _make_authority(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl("req", "-x509", *_new_key(key), "-subj", f"/CN=Milepost test {name}", "-days", "2", "-out", str(certificate))
    return certificate, key


def _make_signed(folder: Path, use: str, name: str, ca: Path, ca_key: Path) -> tuple[Path, Path]:
    certificate, key, request = (folder / f"{name}.{ending}" for ending in ("pem", "key", "csr"))
    _openssl("req", *_new_key(key), "-subj", f"/CN={name}", "-out", str(request))
    extensions = ["-extfile", str(folder / "extensions.cnf"), "-extensions", use]
    sign = ["x509", "-req", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca_key), "-CAcreateserial", "-days", "2"]
    _openssl(*sign, *extensions, "-out", str(certificate))
    return certificate, key


def _new_key(path: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path)]


def _openssl(*arguments: str) -> None:
    subprocess.run([need("openssl", debian="openssl"), *arguments], check=True, capture_output=True)
