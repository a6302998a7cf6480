"""Certificates read again: each listener gets its own, and a socket bound for TLS never serves plain text."""

import socket
from pathlib import Path

from live.mqtt.certificates import make_certificates
from milepost.config.settings import Listener, Transport
from milepost.listeners.tls import TlsStream
from milepost.runtime.streams import Wrapper, read_contexts

PACKET_BYTES_MAX = 1_000


def test_a_tls_listener_stays_one_when_the_file_has_other_listeners_in_its_place(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates")
    plain = Listener("127.0.0.1:1883")
    secure = Listener("127.0.0.1:8883", Transport.TLS, str(made.server), str(made.server_key))
    wrapper = Wrapper(secure, PACKET_BYTES_MAX)
    for listeners in ((plain, secure), (plain,), (Listener(secure.address),), ()):
        wrapper.reload(read_contexts(listeners))
        ours, theirs = socket.socketpair()
        with theirs:
            stream = wrapper.wrap(ours)
            assert isinstance(stream, TlsStream), listeners
            stream.close()


def test_a_tls_listener_shows_its_new_certificate(tmp_path: Path) -> None:
    old, new = (make_certificates(tmp_path / name) for name in ("old", "new"))
    listeners = [Listener("127.0.0.1:8883", Transport.TLS, str(made.server), str(made.server_key)) for made in (old, new)]
    wrapper = Wrapper(listeners[0], PACKET_BYTES_MAX)
    contexts = read_contexts(listeners[1:])
    wrapper.reload(contexts)
    ours, theirs = socket.socketpair()
    with theirs:
        stream = wrapper.wrap(ours)
        assert isinstance(stream, TlsStream)
        assert stream._tls.context in contexts.values()
        stream.close()
