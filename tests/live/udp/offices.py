"""An authority of the tests' own: certificates for edges and endpoints, as files and as values."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from milepost.client import Trust
from milepost.model.instants import Instant
from milepost.runtime.certificate_authority import AUTHORITY, REVOKED, issue_in, make_authority, new_keys, public_keys_of
from milepost.runtime.trust_files import Kind, read_authority, write_new


@dataclass
class Office:
    """An authority's folder, and what it issued in the folder `issued` beside it."""

    folder: Path
    _known: dict[str, Trust] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> "Office":
        office = cls(folder / "authority")
        make_authority(office.folder, _now())
        office.issued.mkdir()
        return office

    @property
    def issued(self) -> Path:
        return self.folder.parent / "issued"

    @property
    def authority(self) -> Path:
        return self.folder / AUTHORITY

    def trust(self, name: str, *, role: str = "vehicle") -> Trust:
        """Who an endpoint is; the same each time for the same name."""
        if name not in self._known:
            keys = new_keys(signs=False)
            certificate = issue_in(self.folder, name, public_keys_of(keys), role=role, days=1, now=_now())
            write_new(self.issued / f"{name}.key", Kind.KEY, keys.static)
            write_new(self.issued / f"{name}.cert", Kind.CERTIFICATE, certificate.data)
            self._known[name] = Trust(read_authority(self.authority), certificate, keys.static)
        return self._known[name]

    def admit_edge(self, name: str) -> None:
        """Issue the files of an edge, once."""
        if not (self.issued / f"{name}.cert").exists():
            keys = new_keys(signs=True)
            certificate = issue_in(self.folder, name, public_keys_of(keys), role="edge", days=1, now=_now())
            write_new(self.issued / f"{name}.key", Kind.KEY, b"".join(keys))
            write_new(self.issued / f"{name}.cert", Kind.CERTIFICATE, certificate.data)

    def table(self, edge: str) -> str:
        """The table [trust] of an edge's settings."""
        files = {
            "authority": self.authority,
            "certificate": self.issued / f"{edge}.cert",
            "key": self.issued / f"{edge}.key",
            "revoked": self.folder / REVOKED,
        }
        return "\n".join(["[trust]", *(f'{key} = "{path}"' for key, path in files.items())])


def _now() -> Instant:
    return Instant(time.time_ns())
