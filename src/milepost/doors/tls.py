"""TLS: streams through it, and the contexts they are made by. Imported only where a listener asks for it."""

import ssl
from contextlib import suppress
from pathlib import Path

from milepost.doors.streams import READ_BYTES, SocketStream


def context_of(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or later with a certificate; with `client_ca`, clients must show one that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


class TlsStream(SocketStream):
    """A connection through TLS; the handshake happens while it is read."""

    __slots__ = ("_is_named", "_is_open", "_tls")

    scheme = "mqtts"

    def __init__(self, connection: ssl.SSLSocket, *, is_named: bool = False) -> None:
        super().__init__(connection)
        self._tls = connection
        self._is_named = is_named
        self._is_open = False

    def read(self) -> bytes | None:
        """What has arrived: several records if they are there, and none of them left inside where nobody would see it."""
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
        """Send; TLS takes one record at a time."""
        view = memoryview(data)
        at = 0
        with suppress(BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while at < len(view):
                at += self._tls.send(view[at:])
        return at

    def maybe_common_name(self) -> str | None:
        """The name in the certificate that the client showed, if it is to be the user's."""
        if not self._is_named:
            return None
        subject = (self._tls.getpeercert() or {}).get("subject", ())
        pairs: list[tuple[str, str]] = [pair for part in subject for pair in part]  # type: ignore[misc]  # typeshed: one level less
        return dict(pairs).get("commonName")
