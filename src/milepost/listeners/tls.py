"""TLS streams and their contexts. Imported only if a listener is configured for TLS."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from milepost.listeners.streams import READ_BYTES, CertificateField, SocketStream
from milepost.model.reasons import Reason, Refused, shown

USER_BYTES_MAX: Final = 1_024
"""Maximum bytes of a user name in a certificate."""

_FIELD_TEXTS: Final = {
    CertificateField.COMMON_NAME: "common name",
    CertificateField.URI: "subject alternative name of type URI",
    CertificateField.DNS: "subject alternative name of type DNS",
    CertificateField.EMAIL: "subject alternative name of type e-mail",
}
_ALTERNATIVE_NAMES: Final = {CertificateField.URI: "URI", CertificateField.DNS: "DNS", CertificateField.EMAIL: "email"}
"""As `ssl.SSLSocket.getpeercert` names them."""


def context_of(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return a server context for TLS 1.2 or later; with *client_ca*, clients need a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


def user_of(certificate: dict[str, Any], field: CertificateField) -> str | Refused:
    """Return the user name in a client's certificate, as `ssl.SSLSocket.getpeercert` returns it; it must have exactly one."""
    if field is CertificateField.COMMON_NAME:
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    else:
        names = [value for key, value in certificate.get("subjectAltName", ()) if key == _ALTERNATIVE_NAMES[field]]
    what = _FIELD_TEXTS[field]
    if len(names) != 1:
        return _bad(f"the certificate has {len(names) or 'no'} {what}{'s' if names else ''}, and needs one that names the user")
    (name,) = names
    if not name.strip():
        return _bad(f"the {what} in the certificate is empty, and needs to name the user")
    if not name.isprintable() or name != name.strip():
        return _bad(f"the {what} in the certificate, {shown(name)}, has a control character, or a space at an end")
    if len(name.encode()) > USER_BYTES_MAX:
        return _bad(f"the {what} in the certificate has more than {USER_BYTES_MAX} bytes")
    return str(name)


def _bad(detail: str) -> Refused:
    return Refused(Reason.BAD_CREDENTIALS, detail)


class TlsStream(SocketStream):
    """A TLS connection; `read` performs the handshake."""

    __slots__ = ("_is_open", "_tls", "_user_field")

    scheme = "mqtts"

    def __init__(self, connection: ssl.SSLSocket, *, user_field: CertificateField | None = None) -> None:
        super().__init__(connection)
        self._tls = connection
        self._user_field = user_field
        self._is_open = False

    def read(self) -> bytes | None:
        """Return the bytes that have arrived; leave no decrypted bytes in the TLS buffer, where epoll cannot see them."""
        found: list[bytes] = []
        size = 0
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while size < READ_BYTES or self._tls.pending():
                data = self._tls.recv(READ_BYTES)
                if not data:
                    return b"".join(found)
                found.append(data)
                size += len(data)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b"".join(found) if found else None
        except (OSError, ValueError):  # ssl.SSLError is an OSError
            return b"".join(found)
        return b"".join(found)

    def write(self, data: bytes | memoryview) -> int:
        """Send bytes, one TLS record at a time; return how many were accepted."""
        view = memoryview(data)
        at = 0
        with suppress(BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while at < len(view):
                at += self._tls.send(view[at:])
        return at

    def maybe_certificate_user(self) -> str | Refused | None:
        """Return the user that the client's certificate names; None: the certificate is not the user name."""
        if self._user_field is None:
            return None
        try:
            certificate = self._tls.getpeercert() or {}
        except ValueError:  # a name that is no text
            return _bad("the names in the certificate cannot be read")
        return user_of(certificate, self._user_field)
