"""TLS: streams through it, and the contexts they are made by. Imported only where a listener asks for it."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path

from milepost.doors.streams import READ_BYTES


def context_of(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or later with a certificate; with `client_ca`, clients must show one that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


class TlsStream:
    """A connection through TLS; the handshake happens while it is read."""

    __slots__ = ("_is_named", "_is_open", "_socket", "fd")

    has_unsent = False

    def __init__(self, connection: ssl.SSLSocket, *, is_named: bool = False) -> None:
        self._socket = connection
        self._is_named = is_named
        self._is_open = False
        self.fd = connection.fileno()

    def read(self) -> bytes | None:
        """What has arrived: several records if they are there, and none of them left inside where nobody would see it."""
        found: list[bytes] = []
        size = 0
        try:
            if not self._is_open:
                self._socket.do_handshake()
                self._is_open = True
            while size < READ_BYTES or self._socket.pending():
                data = self._socket.recv(READ_BYTES)
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
                at += self._socket.send(view[at:])
        return at

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        """Say that nothing more is coming."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self._socket.close()

    def maybe_common_name(self) -> str | None:
        """The name in the certificate that the client showed, if it is to be the user's."""
        if not self._is_named:
            return None
        subject = (self._socket.getpeercert() or {}).get("subject", ())
        pairs: list[tuple[str, str]] = [pair for part in subject for pair in part]  # type: ignore[misc]  # typeshed: one level less
        return dict(pairs).get("commonName")
