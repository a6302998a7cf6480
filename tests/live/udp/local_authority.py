"""A certificate authority for tests: certificates for edges and endpoints, as files and as values."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from milepost.client import Credentials
from milepost.model.instants import Instant
from milepost.runtime.certificate_authority import AUTHORITY, REVOKED, issue_in, make_authority, new_keys, public_keys_of
from milepost.runtime.trust_files import TrustFileType, read_authority, write_new


@dataclass
class LocalAuthority:
    """A certificate authority's folder, and the folder `issued` beside it with its certificates and keys."""

    folder: Path
    _known: dict[str, Credentials] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> "LocalAuthority":
        authority = cls(folder / "authority")
        make_authority(authority.folder, _now())
        authority.issued.mkdir()
        return authority

    @property
    def issued(self) -> Path:
        return self.folder.parent / "issued"

    @property
    def ca_file(self) -> Path:
        return self.folder / AUTHORITY

    def credentials(self, name: str, *, role: str = "vehicle") -> Credentials:
        """Return the credentials of an endpoint, issued once per name."""
        if name not in self._known:
            keys = new_keys(signs=False)
            certificate = issue_in(self.folder, name, public_keys_of(keys), role=role, days=1, now=_now())
            write_new(self.issued / f"{name}.key", TrustFileType.KEY, keys.static)
            write_new(self.issued / f"{name}.cert", TrustFileType.CERTIFICATE, certificate.data)
            self._known[name] = Credentials(read_authority(self.ca_file), certificate, keys.static)
        return self._known[name]

    def operator(self, name: str) -> Credentials:
        """Return the credentials of an operator, who signs messages."""
        self.issue_signer(name, role="operator")
        files = {"certificate": self.issued / f"{name}.cert", "key": self.issued / f"{name}.key"}
        return Credentials.from_files(ca=self.ca_file, **files)

    def issue_edge(self, name: str) -> None:
        """Issue the files of an edge, once."""
        self.issue_signer(name, role="edge")

    def issue_signer(self, name: str, *, role: str) -> None:
        """Issue the files of a signer, once."""
        if not (self.issued / f"{name}.cert").exists():
            keys = new_keys(signs=True)
            certificate = issue_in(self.folder, name, public_keys_of(keys), role=role, days=1, now=_now())
            write_new(self.issued / f"{name}.key", TrustFileType.KEY, b"".join(keys))
            write_new(self.issued / f"{name}.cert", TrustFileType.CERTIFICATE, certificate.data)

    def trust_table(self, edge: str) -> str:
        """Return the table [trust] of an edge's settings."""
        files = {
            "ca": self.ca_file,
            "certificate": self.issued / f"{edge}.cert",
            "key": self.issued / f"{edge}.key",
            "revoked": self.folder / REVOKED,
        }
        return "\n".join(["[trust]", *(f'{key} = "{path}"' for key, path in files.items())])


def _now() -> Instant:
    return Instant(time.time_ns())
