"""Attack: a client whose TLS certificate is valid and names no user, or several, connects where certificates are users."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.mqtt.brokers import Broker, Setup, free_port
from live.mqtt.certificates import Certificates, make_certificates
from live.mqtt.packets import P
from live.mqtt.raw_client import RawClient
from parts import need

BAD_CREDENTIALS: Final = 0x86

RULE: Final = """
[[access.rules]]
allow = true
action = "both"
topics = "%u/#"
[[access.rules]]
allow = false
action = "both"
topics = "#"
"""


class TlsClient(RawClient):
    """A raw client over TLS with a certificate."""

    def __init__(self, port: int, certificates: Certificates, certificate: Path, key: Path) -> None:
        super().__init__(port)
        context = ssl.create_default_context(cafile=str(certificates.ca))
        context.load_cert_chain(certificate, key)
        plain: socket.socket = self.socket
        self.socket = context.wrap_socket(plain, server_hostname="localhost")


class Town:
    """An edge whose TLS listener takes its users from certificates, and a certificate authority for clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificates = make_certificates(folder / "made")
        self.edges: list[Broker] = []

    def edge(self, user_from: str = "") -> tuple[Broker, int]:
        """Start an edge; return it with the port of its TLS listener."""
        port, folder = free_port(), self.folder / f"edge-{len(self.edges)}"
        folder.mkdir()
        lines = [
            "[[mqtt.listen]]",
            f'address = "127.0.0.1:{port}"',
            'transport = "tls"',
            f'certificate = "{self.certificates.server}"',
            f'key = "{self.certificates.server_key}"',
            f'client_ca = "{self.certificates.ca}"',
            "certificate_is_user = true",
            f'user_from = "{user_from}"' if user_from else "",
        ]
        edge = Broker(Setup(folder, more="\n".join([*lines, RULE])))
        edge.start()
        self.edges.append(edge)
        return edge, port

    def issue(self, name: str, subject: str, alternatives: str = "") -> tuple[Path, Path]:
        """Issue a client certificate with any subject and alternative names."""
        made = self.folder / "made"
        key, request, certificate, extensions = (made / f"{name}.{ending}" for ending in ("key", "csr", "pem", "ext"))
        names = f"subjectAltName = {alternatives}\n" if alternatives else ""
        extensions.write_text(f"extendedKeyUsage = clientAuth\n{names}")
        openssl, ca = need("openssl", debian="openssl"), ["-CA", f"{made}/ca.pem", "-CAkey", f"{made}/ca.key", "-CAcreateserial"]
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]
        subprocess.run([openssl, "req", *new_key, "-subj", subject, "-out", str(request)], check=True, capture_output=True)
        sign = [openssl, "x509", "-req", "-in", str(request), *ca, "-days", "2", "-extfile", str(extensions)]
        sign += ["-out", str(certificate)]
        subprocess.run(sign, check=True, capture_output=True)
        return certificate, key


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("users"))
    yield town
    for edge in town.edges:
        edge.end()
        assert edge.faults() == []


def answer_to(town: Town, port: int, files: tuple[Path, Path], *, publishes_to: str = "") -> tuple[int, str, int]:
    """Connect; return the reason code and text of CONNACK, and the reason code of a PUBACK if that is a refusal."""
    with TlsClient(port, town.certificates, *files) as client:
        answer = client.try_join("any-client", clean=True, user="admin", password=b"")
        text = next((str(value) for which, value in answer.properties if which == P.REASON_STRING), "")
        if answer.reason or not publishes_to:
            return answer.reason, text, 0
        reply = client.publish(publishes_to, b"x", qos=1)
        assert reply is not None
        return 0, text, reply.reason if reply.reason >= 0x80 else 0


def test_a_certificate_without_a_common_name_is_refused(town: Town) -> None:
    _, port = town.edge()
    for name, subject in (("no-cn", "/O=Fleet"), ("empty-cn", "/O=Fleet/CN= "), ("two-cn", "/CN=ada/CN=mallory")):
        reason, text, _ = answer_to(town, port, town.issue(name, subject, "URI:spiffe://fleet/ada"))
        assert reason == BAD_CREDENTIALS, name
        assert "common name" in text, name
    assert answer_to(town, port, town.issue("ada", "/CN=ada"), publishes_to="ada/t")[::2] == (0, 0)


@pytest.mark.parametrize(
    ("user_from", "alternatives", "user"),
    [
        ("uri", "URI:urn:fleet:ada", "urn:fleet:ada"),
        ("dns", "DNS:ada.fleet.example", "ada.fleet.example"),
        ("email", "email:ada@fleet.example", "ada@fleet.example"),
    ],
)
def test_a_subject_alternative_name_is_the_user(town: Town, user_from: str, alternatives: str, user: str) -> None:
    _, port = town.edge(user_from)
    good = town.issue(f"{user_from}-good", "/CN=mallory", alternatives)
    assert answer_to(town, port, good, publishes_to=f"{user}/t")[::2] == (0, 0)
    assert answer_to(town, port, good, publishes_to="mallory/t")[2], "the common name has no rights"
    reason, text, _ = answer_to(town, port, town.issue(f"{user_from}-none", "/CN=ada"))
    assert (reason, "subject alternative name" in text) == (BAD_CREDENTIALS, True)
    kind = alternatives.partition(":")[0]
    reason, text, _ = answer_to(
        town, port, town.issue(f"{user_from}-two", "/CN=ada", f"{alternatives},{kind}:urn.second.example")
    )
    assert (reason, "has 2" in text) == (BAD_CREDENTIALS, True)
