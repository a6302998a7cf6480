"""TLS streams and their contexts. Imported only if a listener is configured for TLS."""

import ssl
from contextlib import suppress
from pathlib import Path

from milepost.listeners.streams import READ_BYTES, SocketStream


def context_of(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return a server context for TLS 1.2 or later; with *client_ca*, clients need a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


class TlsStream(SocketStream):
    """A TLS connection; `read` performs the handshake."""

    __slots__ = ("_is_named", "_is_open", "_tls")

    scheme = "mqtts"

    def __init__(self, connection: ssl.SSLSocket, *, is_named: bool = False) -> None:
        super().__init__(connection)
        self._tls = connection
        self._is_named = is_named
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

    def maybe_common_name(self) -> str | None:
        """Return the common name in the client's certificate, if it serves as the user name."""
        if not self._is_named:
            return None
        subject = (self._tls.getpeercert() or {}).get("subject", ())
        pairs: list[tuple[str, str]] = [pair for part in subject for pair in part]  # type: ignore[misc]  # typeshed: one level less
        return dict(pairs).get("commonName")
