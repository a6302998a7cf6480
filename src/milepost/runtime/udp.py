"""The UDP listener of an edge, set up from the settings and the files of keys and certificates."""

import os
from pathlib import Path
from time import monotonic_ns
from typing import Final

from milepost.broker.broker import Broker
from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, UsageFault, cannot_listen
from milepost.config.settings import Settings
from milepost.config.udp_settings import Seal
from milepost.listeners.event_loop import EventLoop
from milepost.listeners.udp.listener import UdpListener
from milepost.listeners.udp.settings import Identity
from milepost.listeners.udp.socket import DiscoverySocket, UdpSocket, bind_at, join_at
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed
from milepost.runtime.files import Changed
from milepost.runtime.logs import Log
from milepost.runtime.trust_files import KeyFile, read_authority, read_certificate_file, read_key, read_revoked
from milepost.trust.certificates import EDGE, Authority, Certificate
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, signing_public_of

PULSE_S: Final = 0.02
LOOK_S: Final = 1.0
"""Interval of the check for a replaced revocation list."""


class UdpService:
    """The UDP listener, its sockets and its revocation list."""

    def __init__(self, settings: Settings, broker: Broker, turns: EventLoop, log: Log) -> None:
        self._settings = settings
        self._log = log
        udp = settings.udp
        host, port = host_and_port(udp.address)
        keys, certificate = read_identity(settings)
        self._authority = None if certificate is None else Authority(read_authority(Path(settings.trust.authority)))
        identity = None
        if keys is not None and certificate is not None and self._authority is not None:
            identity = Identity(keys.static, certificate, self._authority)
        try:
            bound = bind_at(host, port, multicast_interface=udp.cells.interface)
        except OSError as error:
            raise cannot_listen(udp.address, error) from None
        self.entrance = UdpSocket(turns, bound, log, broker.counts, udp.door.gather_ns)
        self.door = UdpListener(broker, udp.door, identity, self.entrance, log, draw=os.urandom, clock=monotonic_ns)
        self.door.finding.port = self.entrance.port
        if keys is not None and certificate is not None:
            signer = Signer(keys.signing, certificate)
            broker.sign_with(signer)
            self.door.finding.signer = signer
            self.door.finding.certificate = certificate.data
        else:
            log.warning("udp seals nothing: for experiments only, anybody can read and forge", address=self.entrance.address)
        self._finding = self._join(turns)
        self._revoked = Changed(settings.trust.revoked)
        self.reload_revoked(Instant(0))
        self.entrance.serve(self.door)
        turns.every(LOOK_S, self.reload_revoked)
        turns.every(PULSE_S, self.door.pulse)

    def _join(self, turns: EventLoop) -> DiscoverySocket | None:
        finding = self._settings.udp.finding
        if not finding.group:
            return None
        try:
            return DiscoverySocket(turns, join_at(finding.group, finding.port, finding.interface), self.door.finding.answer)
        except OSError as error:
            raise StartFault(f"[udp.finding] cannot join {finding.group}:{finding.port}: {error.strerror or error}") from None

    def reload_revoked(self, now: Instant) -> None:
        """Read the revocation list if it has changed, and end the sessions of revoked certificates."""
        if self._authority is None or not self._revoked.has_changed():
            return
        try:
            public = read_authority(Path(self._settings.trust.authority))
            self._authority.use(read_revoked(Path(self._settings.trust.revoked), public))
        except (UsageFault, Malformed) as fault:
            self._log.warning("revocations not read", reason=str(fault))
            return
        ended = self.door.expel_revoked(now) if now else 0
        self._log.info("revocations read", revoked=len(self._authority.revoked), ended=ended)

    def close(self) -> None:
        """Close the sockets."""
        self.entrance.close()
        if self._finding is not None:
            self._finding.close()


def read_identity(settings: Settings) -> tuple[KeyFile | None, Certificate | None]:
    """Read the keys and the certificate of the edge, checked against each other; None without encryption."""
    if settings.udp.seal is Seal.NONE:
        return None, None
    trust = settings.trust
    if not (trust.authority and trust.certificate and trust.key):
        raise UsageFault(
            "[udp] seals with noise, which needs authority, certificate and key in [trust]: make them with"
            ' "milepost trust init DIR" and "milepost trust issue DIR NAME --role edge"; or set seal = "none" for an experiment'
        )
    keys, certificate = read_key(Path(trust.key)), read_certificate_file(Path(trust.certificate))
    if certificate.role != EDGE:
        raise UsageFault(f'{trust.certificate} is of the role {certificate.role}: issue one with "--role edge"')
    is_pair = public_of(keys.static) == certificate.key and signing_public_of(keys.signing) == certificate.signing_key
    if not is_pair:
        raise UsageFault(f"{trust.key} is not the key of {trust.certificate}: take the two that were issued together")
    if certificate.id != settings.edge.name:
        raise UsageFault(
            f"{trust.certificate} is for {certificate.id!r}, the edge is named {settings.edge.name!r}: make them equal"
        )
    return keys, certificate
