"""The file of reputations: read again when it is replaced, and held against everybody who is here."""

from pathlib import Path

from milepost.edge.corridor import Corridor
from milepost.model.reasons import Malformed
from milepost.service.faults import UsageFault, cannot_read
from milepost.service.files import Changed
from milepost.service.logs import Log
from milepost.vetting.reputation import Reputations


class ReputationFile:
    """Keeps the corridor's reputations equal to a file."""

    def __init__(self, path: str, corridor: Corridor, log: Log) -> None:
        self._path = path
        self._corridor = corridor
        self._log = log
        self._changed = Changed(path)

    def look(self) -> None:
        """Read the file if it has changed; one that cannot be read changes nothing, and is told."""
        if not self._changed.has_changed():
            return
        try:
            reputations = read_reputations(self._path)
        except UsageFault as fault:
            self._log.warning("reputations not read", reason=str(fault))
            return
        self._corridor.believe(reputations)
        self._log.info("reputations read", endpoints=len(reputations))


def read_reputations(path: str) -> Reputations:
    """The scores in a file."""
    try:
        return Reputations.read(Path(path).read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except Malformed as fault:
        raise UsageFault(f"{path}: {fault}") from None
