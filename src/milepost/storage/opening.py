"""Opening: the storage that the configuration asks for."""

from pathlib import Path

from milepost.edge.keeping import Storage
from milepost.model.survives import Survives
from milepost.storage.memory import MemoryStorage
from milepost.storage.sqlite import SqliteStorage


def open_storage(path: Path, survives: Survives) -> Storage:
    """Storage in the directory `path`, which is made if need be; with `Survives.NOTHING` the directory is not touched."""
    return MemoryStorage() if survives is Survives.NOTHING else SqliteStorage(path, survives)
