"""The trust of an edge: its identity, its certificate authority and the revocation lists, from the files of `[trust]`.

    ca, certificate, key   read at the start: the edge signs its alerts, and verifies the signatures of clients
    revoked                certificates that are refused; sessions over UDP with one of them end
    revoked_signers        retained on `$milepost/revocations`, for clients that verify signatures

Invariants of both lists:
- one that is missing, damaged or not signed by the certificate authority stops the start; while the edge runs, it changes nothing
  and is logged, and the last good list stays in force;
- no list is replaced by an older one, also after a restart: the last accepted one is kept in the data folder, under a name with
  the fingerprint of the certificate authority.

An edge whose own certificate is on a list does not start. One that runs when that happens signs nothing more and is not ready.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from milepost.broker.broker import Broker
from milepost.broker.publication import Publication
from milepost.config.errors import UsageFault
from milepost.config.settings import Settings
from milepost.config.udp_settings import Encryption, TrustSettings
from milepost.listeners.udp.settings import EdgeIdentity
from milepost.model.instants import Instant
from milepost.runtime.certificate_authority import REVOKED_SIGNERS
from milepost.runtime.files import FileWatch
from milepost.runtime.structured_log import StructuredLog
from milepost.runtime.trust_files import (
    KeyFile,
    TrustFileType,
    read_authority,
    read_certificate_file,
    read_key,
    read_revoked,
    replace_file,
)
from milepost.trust.certificates import EDGE, Certificate, CertificateAuthority, Revocations, RevocationScope
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, Verifier, signing_public_of
from milepost.wire.requests import REVOCATIONS_TOPIC

_FINGERPRINT_DIGITS: Final = 16
_KEPT_NAMES: Final = {RevocationScope.ALL: "revoked", RevocationScope.SIGNERS: "revoked-signers"}
_OWN_REVOKED: Final = (
    "the certificate of this edge is revoked: issue a new one with `milepost trust issue`,"
    " or name the right certificate in [trust]"
)
_FILE_TYPES: Final = {
    RevocationScope.ALL: TrustFileType.REVOKED,
    RevocationScope.SIGNERS: TrustFileType.REVOKED_SIGNERS,
}


class RevocationFile:
    """A revocation list that is replaced from outside, and the last one of it that was accepted."""

    def __init__(self, path: Path, scope: RevocationScope, ca: bytes, folder: Path, log: StructuredLog) -> None:
        self._path = path
        self._scope = scope
        self._ca = ca
        self._kept_path = folder / f"{_KEPT_NAMES[scope]}-{sha256(ca).hexdigest()[:_FINGERPRINT_DIGITS]}.list"
        self._watch = FileWatch(str(path))
        self._watch.has_changed()  # read below
        self._is_kept = False
        configured, kept = read_revoked(path, ca, scope), self._maybe_kept()
        if kept is not None and kept.issued_at > configured.issued_at:
            log.warning("configured revocation list is older than the last accepted one, which stays in force", file=str(path))
            self.current, self._is_kept = kept, True
        else:
            self.current = configured
            self.keep()

    def _maybe_kept(self) -> Revocations | None:
        if not self._kept_path.exists():
            return None
        try:
            return read_revoked(self._kept_path, self._ca, self._scope)
        except UsageFault:
            raise UsageFault(
                f"{self._kept_path}, the last accepted revocation list, is damaged: check that {self._path} is the newest list"
                " of the certificate authority, then delete the damaged file"
            ) from None

    def keep(self) -> None:
        """Keep the list in force for the next start, unless that is done; raise `UsageFault` if it cannot be written."""
        if self._is_kept:
            return
        try:
            self._kept_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageFault(f"{self._kept_path.parent} cannot be created: {error.strerror}; choose another folder") from None
        replace_file(self._kept_path, _FILE_TYPES[self._scope], self.current.data)
        self._is_kept = True

    def maybe_newer(self) -> Revocations | None:
        """Return the list if the file has changed; raise `UsageFault` if it is not valid, or older."""
        if not self._watch.has_changed():
            return None
        found = read_revoked(self._path, self._ca, self._scope)
        if found.issued_at < self.current.issued_at:
            raise UsageFault(f"{self._path} is older than the one in use: copy the newest list of the certificate authority")
        if found.data == self.current.data:
            return None
        self.current, self._is_kept = found, False
        return found


class EdgeTrust:
    """The identity of an edge and the certificates it trusts."""

    def __init__(self, settings: Settings, log: StructuredLog) -> None:
        trust, folder = settings.trust, Path(settings.edge.data)
        self._log = log
        self.keys, self.certificate = read_identity(settings)
        ca = read_authority(Path(trust.ca))
        self.authority = CertificateAuthority(ca)
        self._revoked = RevocationFile(Path(trust.revoked), RevocationScope.ALL, ca, folder, log) if trust.revoked else None
        signers = _signers_path(trust)
        self._signers = None if signers is None else RevocationFile(signers, RevocationScope.SIGNERS, ca, folder, log)
        if self._revoked is not None:
            self.authority.use(self._revoked.current)
            log.info("revocation list loaded", revoked=len(self.authority.revoked), ended=0)
        if (problem := self.find_problem()) is not None:
            raise UsageFault(problem)
        self.on_revoked: Callable[[Instant], int] = lambda _: 0
        """Ends the sessions of revoked certificates; returns how many."""
        self.on_own_revoked: Callable[[], None] = lambda: None
        """Stops the use of this edge's certificate outside the broker."""
        self._is_signing = self.certificate is not None

    def find_problem(self) -> str | None:
        """Return why the edge cannot serve: its certificate is revoked; a check of its readiness."""
        signers = frozenset() if self._signers is None else self._signers.current.serials
        return _maybe_own_revoked(self.certificate, self.authority.revoked, signers)

    def identity(self) -> EdgeIdentity:
        """Return the identity of an edge that encrypts its sessions."""
        assert self.keys is not None, "`read_identity` has checked the keys"
        assert self.certificate is not None, "`read_identity` has checked the certificate"
        return EdgeIdentity(self.keys.static, self.certificate, self.authority)

    def maybe_signer(self) -> Signer | None:
        """Return the signer of this edge; None if it has no certificate."""
        return None if self.keys is None or self.certificate is None else Signer(self.keys.signing, self.certificate)

    def apply_to(self, broker: Broker) -> None:
        """Have the broker sign its alerts, and verify the signatures of clients."""
        signer = self.maybe_signer()
        if signer is not None:
            broker.sign_with(signer)
        broker.verify_with(Verifier(self.authority))

    def publish_revoked_signers(self, broker: Broker, now: Instant) -> None:
        """Publish the list of revoked signers, retained, for clients."""
        if self._signers is not None:
            data = self._signers.current.data
            broker.accept(Publication(REVOCATIONS_TOPIC, data, now, source=broker.source, qos=1, is_retained=True), None, now)

    def reload(self, broker: Broker, now: Instant) -> None:
        """Read the lists that have changed; one that is not valid or older is logged, and the last good one stays in force."""
        if (revoked := self._maybe_newer(self._revoked)) is not None:
            self.authority.use(revoked)
            self._log.info("revocation list loaded", revoked=len(revoked.serials), ended=self.on_revoked(now))
        if (signers := self._maybe_newer(self._signers)) is not None:
            self.publish_revoked_signers(broker, now)
            self._log.info("list of revoked signers loaded", revoked=len(signers.serials))
        if (revoked is not None or signers is not None) and self._is_signing and (problem := self.find_problem()) is not None:
            self._is_signing = False
            broker.sign_with(None)
            self.on_own_revoked()
            self._log.error("this edge signs nothing more and is not ready", reason=problem)
        for file in (self._revoked, self._signers):
            self._keep(file)

    def _keep(self, file: RevocationFile | None) -> None:
        """Keep a list that is in force; while that fails, it is tried again at every reload."""
        try:
            if file is not None:
                file.keep()
        except UsageFault as fault:
            self._log.info_limited("revocation list in force, but not kept for the next start", reason=str(fault))

    def _maybe_newer(self, file: RevocationFile | None) -> Revocations | None:
        try:
            return None if file is None else file.maybe_newer()
        except UsageFault as fault:
            self._log.warning("revocation list not loaded; the last good one stays in force", reason=str(fault))
            return None


def maybe_edge_trust(settings: Settings, log: StructuredLog) -> EdgeTrust | None:
    """Return the trust of an edge; None if it has no certificate authority."""
    trust = settings.trust
    if trust.ca:
        return EdgeTrust(settings, log)
    read_identity(settings)  # raises if one is needed
    if trust.certificate or trust.key or trust.revoked or trust.revoked_signers:
        raise UsageFault("[trust] has no ca: name the public key of the certificate authority, authority.pub")
    return None


def read_identity(settings: Settings) -> tuple[KeyFile | None, Certificate | None]:
    """Read the keys and the certificate of the edge, checked against each other; None without a certificate."""
    trust = settings.trust
    is_sealed = bool(settings.udp.address) and settings.udp.encryption is Encryption.NOISE
    if is_sealed and not (trust.ca and trust.certificate and trust.key):
        raise UsageFault(
            '[udp] encryption = "noise" needs ca, certificate and key in [trust]: create them with "milepost trust init DIR" and'
            ' "milepost trust issue DIR NAME --role edge"; or set encryption = "none" for an experiment'
        )
    if not (trust.certificate or trust.key):
        return None, None
    if not (trust.certificate and trust.key):
        raise UsageFault("[trust] certificate and key belong together: give both, or neither")
    keys, certificate = read_key(Path(trust.key)), read_certificate_file(Path(trust.certificate))
    if certificate.role != EDGE:
        raise UsageFault(
            f'[trust] certificate: {trust.certificate} has the role {certificate.role}, not edge: issue one with "--role edge"'
        )
    check_pair(keys, certificate, f"[trust] key: {trust.key}", trust.certificate)
    if certificate.id != settings.edge.name:
        raise UsageFault(
            f"[trust] certificate: {trust.certificate} is for {certificate.id!r}, but [edge] name is {settings.edge.name!r}:"
            " issue one for this name, or change the name"
        )
    return keys, certificate


def check_not_revoked(settings: Settings) -> None:
    """Raise `UsageFault` if a configured list is not valid, or has the certificate of the edge; nothing is kept."""
    trust, (_, certificate) = settings.trust, read_identity(settings)
    paths = {RevocationScope.ALL: Path(trust.revoked) if trust.revoked else None, RevocationScope.SIGNERS: _signers_path(trust)}
    ca = read_authority(Path(trust.ca))
    serials = [read_revoked(path, ca, scope).serials for scope, path in paths.items() if path is not None]
    if (problem := _maybe_own_revoked(certificate, *serials)) is not None:
        raise UsageFault(problem)


def _maybe_own_revoked(certificate: Certificate | None, *lists: frozenset[int]) -> str | None:
    return _OWN_REVOKED if certificate is not None and any(certificate.serial in serials for serials in lists) else None


def check_pair(keys: KeyFile, certificate: Certificate, what: str, file: str) -> None:
    """Raise `UsageFault` unless private keys with a signing key belong to a certificate."""
    is_pair = (
        bool(keys.signing)
        and public_of(keys.static) == certificate.key
        and signing_public_of(keys.signing) == certificate.signing_key
    )
    if not is_pair:
        raise UsageFault(f"{what} is not the key of {file}: use the two that were issued together")


def _signers_path(trust: TrustSettings) -> Path | None:
    """Return the list of revoked signers: the configured one, or the one beside the revocation list, if there is one."""
    if trust.revoked_signers:
        return Path(trust.revoked_signers)
    beside = Path(trust.revoked).with_name(REVOKED_SIGNERS) if trust.revoked else None
    return beside if beside is not None and beside.exists() else None
