"""Storage: the durable state of an edge, on the disk of its machine, as safe as the configuration asks for."""

from pathlib import Path

from milepost.broker.effects import StateChanges, Storage, StoredState
from milepost.model.durability import Durability
from milepost.storage.errors import StorageDamaged, StorageInUse, StorageTooNew
from milepost.storage.sqlite import SqliteStorage

__all__ = ["Durability", "MemoryStorage", "SqliteStorage", "StorageDamaged", "StorageInUse", "StorageTooNew", "open_storage"]


class MemoryStorage:
    """Storage that stores nothing, for an edge whose sessions need not survive it."""

    def load(self) -> StoredState:
        """Return an empty state."""
        return StoredState()

    def write(self, changes: StateChanges) -> None:
        """Discard the changes."""

    def close(self) -> None:
        """Do nothing."""


def open_storage(path: Path, durability: Durability) -> Storage:
    """Open the storage in the directory *path*, created if need be; with `Durability.NONE` the directory is not touched."""
    return MemoryStorage() if durability is Durability.NONE else SqliteStorage(path, durability)
