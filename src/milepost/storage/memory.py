"""Storage that keeps nothing, for an edge whose sessions need not outlive it."""

from milepost.edge.keeping import Changes, Kept


class MemoryStorage:
    """Takes every change and forgets it: the edge itself has all of it in memory, and that is all there is."""

    def load(self) -> Kept:
        """Nothing, always."""
        return Kept()

    def write(self, changes: Changes) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Nothing is to be finished."""
