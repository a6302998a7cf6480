"""Finding: endpoints ask whether an edge covers the place where they are (M20); those that do answer, signed."""

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from milepost.edge.corridor import Corridor
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import Bucket
from milepost.wire.sealed import ASK_BYTES, Ask, ask_from_bytes, here_unsigned

if TYPE_CHECKING:
    from milepost.trust.signing import Signer

ANSWERS_PER_S: Final = 1_000
"""A signature takes some 30 µs: who asks more often must wait."""


class Finding:
    """Answers who looks for an edge."""

    def __init__(self, corridor: Corridor) -> None:
        self._corridor = corridor
        self._bucket = Bucket(ANSWERS_PER_S, ANSWERS_PER_S)
        self.port = 0
        """Where the door listens."""
        self.certificate = b""
        self.signer: Signer | None = None

    def answer(self, data: bytes, now: Instant) -> bytes:
        """HERE, if this edge serves the place; empty if not."""
        try:
            ask = ask_from_bytes(data)
        except Malformed as fault:
            self._corridor.counts.refused[fault.reason] += 1
            return b""
        if not self._is_covered(ask):
            self._corridor.counts.refused[Reason.OUTSIDE_COVERAGE] += 1
            return b""
        if not self._bucket.take(1, now):
            self._corridor.counts.refused[Reason.EDGE_RATE_TOO_HIGH] += 1
            return b""
        here = here_unsigned(ask.nonce, self.port, self.certificate)
        answer = here + self.signer.sign_here(here) if self.signer is not None else here
        assert len(answer) <= ASK_BYTES, "certificates of edges are short"
        return answer

    def _is_covered(self, ask: Ask) -> bool:
        coverage = self._corridor.watch.ground.coverage
        if coverage is None or (math.isnan(ask.latitude) and math.isnan(ask.longitude)):
            return True
        try:
            place = Place(ask.latitude, ask.longitude)
        except Malformed:
            return False
        return bool(coverage.contains(np.array([place.vector]))[0])
