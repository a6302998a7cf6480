"""The UDP listener of an edge, set up from the settings and the trust of the edge."""

import os
from time import monotonic_ns
from typing import Final

from milepost.broker.broker import Broker
from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, cannot_listen
from milepost.config.settings import Settings
from milepost.config.udp_settings import Encryption
from milepost.listeners.event_loop import EventLoop
from milepost.listeners.udp.listener import UdpListener
from milepost.listeners.udp.socket import DiscoverySocket, UdpSocket, bind_at, join_at
from milepost.runtime.edge_trust import EdgeTrust
from milepost.runtime.structured_log import StructuredLog

PULSE_S: Final = 0.02


class UdpService:
    """The UDP listener and its sockets."""

    def __init__(
        self, settings: Settings, broker: Broker, event_loop: EventLoop, log: StructuredLog, trust: EdgeTrust | None
    ) -> None:
        self._settings = settings
        udp = settings.udp
        host, port = host_and_port(udp.address)
        identity = None
        if udp.encryption is Encryption.NOISE:
            assert trust is not None, "`maybe_edge_trust` refuses an encrypted listener without certificates"
            identity = trust.identity()
        try:
            bound = bind_at(host, port, multicast_interface=udp.cells.interface)
        except OSError as error:
            raise cannot_listen(udp.address, error) from None
        self.socket = UdpSocket(event_loop, bound, log, broker.counts, udp.listener.batch_wait_ns)
        self.listener = UdpListener(broker, udp.listener, identity, self.socket, log, random_bytes=os.urandom, clock=monotonic_ns)
        self.listener.discovery.port = self.socket.port
        if identity is not None and trust is not None:
            self.listener.discovery.signer = trust.maybe_signer()
            self.listener.discovery.certificate = identity.certificate.data
            trust.on_revoked = self.listener.expel_revoked
            trust.on_own_revoked = self._stop_signing
        else:
            log.warning(
                "udp is not encrypted: anyone can read and forge datagrams; for experiments only", address=self.socket.address
            )
        self._discovery_socket = self._join(event_loop)
        self.socket.serve(self.listener)
        event_loop.call_every(PULSE_S, self.listener.pulse)

    def _stop_signing(self) -> None:
        """Answer discovery without a signature, which endpoints ignore."""
        self.listener.discovery.signer = None

    def _join(self, event_loop: EventLoop) -> DiscoverySocket | None:
        discovery = self._settings.udp.discovery
        if not discovery.group:
            return None
        try:
            return DiscoverySocket(
                event_loop, join_at(discovery.group, discovery.port, discovery.interface), self.listener.discovery.answer
            )
        except OSError as error:
            raise StartFault(
                f"[udp.discovery] cannot join {discovery.group}:{discovery.port}: {error.strerror or error}"
            ) from None

    def close(self) -> None:
        """Close the sockets."""
        self.socket.close()
        if self._discovery_socket is not None:
            self._discovery_socket.close()
