"""Reloaded certificates: each listener gets its own, and a TLS listener never serves plain text."""

import socket
from pathlib import Path

from live.mqtt.certificates import make_certificates
from milepost.config.settings import ListenerSettings, Transport
from milepost.listeners.tls import TlsStream
from milepost.runtime.tls_contexts import Wrapper, read_contexts

PACKET_BYTES_MAX = 1_000


def test_a_tls_listener_never_serves_plain_text_after_a_reload(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates")
    plain = ListenerSettings("127.0.0.1:1883")
    secure = ListenerSettings("127.0.0.1:8883", Transport.TLS, str(made.server), str(made.server_key))
    wrapper = Wrapper(secure, PACKET_BYTES_MAX)
    for listeners in ((plain, secure), (plain,), (ListenerSettings(secure.address),), ()):
        wrapper.reload(read_contexts(listeners))
        ours, theirs = socket.socketpair()
        with theirs:
            stream = wrapper.wrap(ours)
            assert isinstance(stream, TlsStream), listeners
            stream.close()


def test_a_tls_listener_presents_its_new_certificate(tmp_path: Path) -> None:
    old, new = (make_certificates(tmp_path / name) for name in ("old", "new"))
    listeners = [ListenerSettings("127.0.0.1:8883", Transport.TLS, str(made.server), str(made.server_key)) for made in (old, new)]
    wrapper = Wrapper(listeners[0], PACKET_BYTES_MAX)
    contexts = read_contexts(listeners[1:])
    wrapper.reload(contexts)
    ours, theirs = socket.socketpair()
    with theirs:
        stream = wrapper.wrap(ours)
        assert isinstance(stream, TlsStream)
        assert stream._tls.context in contexts.values()
        stream.close()
