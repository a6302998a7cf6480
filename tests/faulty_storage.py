"""Storage that fails when a test says so."""

from milepost.broker.effects import Changes, Kept, Storage, StorageUnavailable


class FaultyStorage:
    """Passes everything on to `inner`, until `fail_with`; from then on nothing is written, until `heal`."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self._fault: str | None = None
        self.refused = 0
        """How many writes failed."""

    def fail_with(self, text: str) -> None:
        self._fault = text

    def heal(self) -> None:
        self._fault = None

    def load(self) -> Kept:
        if self._fault is not None:
            raise StorageUnavailable(self._fault)
        return self._inner.load()

    def write(self, changes: Changes) -> None:
        if self._fault is not None:
            self.refused += 1
            raise StorageUnavailable(self._fault)
        self._inner.write(changes)

    def close(self) -> None:
        self._inner.close()
