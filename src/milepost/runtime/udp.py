"""The UDP listener of an edge, set up from the settings and the files of keys and certificates."""

import os
from pathlib import Path
from time import monotonic_ns
from typing import Final

from milepost.broker.broker import Broker
from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, UsageFault, cannot_listen
from milepost.config.settings import Settings
from milepost.config.udp_settings import Encryption
from milepost.listeners.event_loop import EventLoop
from milepost.listeners.udp.listener import UdpListener
from milepost.listeners.udp.settings import EdgeIdentity
from milepost.listeners.udp.socket import DiscoverySocket, UdpSocket, bind_at, join_at
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed
from milepost.runtime.files import FileWatch
from milepost.runtime.structured_log import StructuredLog
from milepost.runtime.trust_files import KeyFile, read_authority, read_certificate_file, read_key, read_revoked
from milepost.trust.certificates import EDGE, Certificate, CertificateAuthority
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, signing_public_of

PULSE_S: Final = 0.02
FILE_CHECK_S: Final = 1.0
"""Interval of the check for a replaced revocation list."""


class UdpService:
    """The UDP listener, its sockets and its revocation list."""

    def __init__(self, settings: Settings, broker: Broker, event_loop: EventLoop, log: StructuredLog) -> None:
        self._settings = settings
        self._log = log
        udp = settings.udp
        host, port = host_and_port(udp.address)
        keys, certificate = read_identity(settings)
        self._authority = None if certificate is None else CertificateAuthority(read_authority(Path(settings.trust.ca)))
        identity = None
        if keys is not None and certificate is not None and self._authority is not None:
            identity = EdgeIdentity(keys.static, certificate, self._authority)
        try:
            bound = bind_at(host, port, multicast_interface=udp.cells.interface)
        except OSError as error:
            raise cannot_listen(udp.address, error) from None
        self.socket = UdpSocket(event_loop, bound, log, broker.counts, udp.listener.batch_wait_ns)
        self.listener = UdpListener(broker, udp.listener, identity, self.socket, log, random_bytes=os.urandom, clock=monotonic_ns)
        self.listener.discovery.port = self.socket.port
        if keys is not None and certificate is not None:
            signer = Signer(keys.signing, certificate)
            broker.sign_with(signer)
            self.listener.discovery.signer = signer
            self.listener.discovery.certificate = certificate.data
        else:
            log.warning(
                "udp is not encrypted: anyone can read and forge datagrams; for experiments only", address=self.socket.address
            )
        self._discovery_socket = self._join(event_loop)
        self._revoked = FileWatch(settings.trust.revoked)
        self.reload_revoked(Instant(0))
        self.socket.serve(self.listener)
        event_loop.call_every(FILE_CHECK_S, self.reload_revoked)
        event_loop.call_every(PULSE_S, self.listener.pulse)

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

    def reload_revoked(self, now: Instant) -> None:
        """Read the revocation list if it has changed, and end the sessions of revoked certificates."""
        if self._authority is None or not self._revoked.has_changed():
            return
        try:
            public = read_authority(Path(self._settings.trust.ca))
            self._authority.use(read_revoked(Path(self._settings.trust.revoked), public))
        except (UsageFault, Malformed) as fault:
            self._log.warning("revocation list not loaded", reason=str(fault))
            return
        ended = self.listener.expel_revoked(now) if now else 0
        self._log.info("revocation list loaded", revoked=len(self._authority.revoked), ended=ended)

    def close(self) -> None:
        """Close the sockets."""
        self.socket.close()
        if self._discovery_socket is not None:
            self._discovery_socket.close()


def read_identity(settings: Settings) -> tuple[KeyFile | None, Certificate | None]:
    """Read the keys and the certificate of the edge, checked against each other; None without encryption."""
    if settings.udp.encryption is Encryption.NONE:
        return None, None
    trust = settings.trust
    if not (trust.ca and trust.certificate and trust.key):
        raise UsageFault(
            '[udp] encryption = "noise" needs ca, certificate and key in [trust]: create them with "milepost trust init DIR" and'
            ' "milepost trust issue DIR NAME --role edge"; or set encryption = "none" for an experiment'
        )
    keys, certificate = read_key(Path(trust.key)), read_certificate_file(Path(trust.certificate))
    if certificate.role != EDGE:
        raise UsageFault(
            f'[trust] certificate: {trust.certificate} has the role {certificate.role}, not edge: issue one with "--role edge"'
        )
    is_pair = public_of(keys.static) == certificate.key and signing_public_of(keys.signing) == certificate.signing_key
    if not is_pair:
        raise UsageFault(f"[trust] key: {trust.key} is not the key of {trust.certificate}: use the two that were issued together")
    if certificate.id != settings.edge.name:
        raise UsageFault(
            f"[trust] certificate: {trust.certificate} is for {certificate.id!r}, but [edge] name is {settings.edge.name!r}:"
            " issue one for this name, or change the name"
        )
    return keys, certificate
