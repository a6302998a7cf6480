"""Storage: what an edge wants kept, on the disk of its machine, as safe as the configuration asks for."""

from milepost.model.survives import Survives
from milepost.storage.faults import StorageDamaged, StorageInUse, StorageTooNew
from milepost.storage.memory import MemoryStorage
from milepost.storage.opening import open_storage
from milepost.storage.sqlite import SqliteStorage

__all__ = ["MemoryStorage", "SqliteStorage", "StorageDamaged", "StorageInUse", "StorageTooNew", "Survives", "open_storage"]
