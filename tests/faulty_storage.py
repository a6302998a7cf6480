"""Storage with faults that a test switches on and off."""

from milepost.broker.effects import StateChanges, Storage, StorageUnavailable, StoredState


class FaultyStorage:
    """Delegates to `inner`; between `fail_with` and `heal` every write and load fails."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self._fault: str | None = None
        self.refused = 0
        """Number of failed writes."""

    def fail_with(self, text: str) -> None:
        self._fault = text

    def heal(self) -> None:
        self._fault = None

    def load(self) -> StoredState:
        if self._fault is not None:
            raise StorageUnavailable(self._fault)
        return self._inner.load()

    def write(self, changes: StateChanges) -> None:
        if self._fault is not None:
            self.refused += 1
            raise StorageUnavailable(self._fault)
        self._inner.write(changes)

    def close(self) -> None:
        self._inner.close()
