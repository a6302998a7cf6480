"""Discovery: an endpoint multicasts ASK with its position, and edges that cover it answer with a signed HERE (M20)."""

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from milepost.broker.broker import Broker
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.vetting import Bucket
from milepost.wire.sealed import ASK_BYTES, DiscoveryRequest, discovery_request_from_bytes, unsigned_discovery_reply

if TYPE_CHECKING:
    from milepost.trust.signing import Signer

ANSWERS_PER_S: Final = 1_000
"""Maximum answers per second: a signature takes some 30 µs."""


class Discovery:
    """Answers endpoints that look for an edge."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._bucket = Bucket(ANSWERS_PER_S, ANSWERS_PER_S)
        self.port = 0
        """The port of the UDP listener."""
        self.certificate = b""
        self.signer: Signer | None = None

    def answer(self, data: bytes, now: Instant) -> bytes:
        """Return HERE if this edge covers the position; empty if not."""
        try:
            ask = discovery_request_from_bytes(data)
        except Malformed as fault:
            self._broker.refuse(fault.refused)
            return b""
        if not self._is_covered(ask):
            self._broker.refuse(Refused(Reason.OUTSIDE_COVERAGE))
            return b""
        if not self._bucket.take(1, now):
            self._broker.refuse(Refused(Reason.EDGE_RATE_TOO_HIGH))
            return b""
        here = unsigned_discovery_reply(ask.nonce, self.port, self.certificate)
        answer = here + self.signer.sign_discovery_reply(here) if self.signer is not None else here
        assert len(answer) <= ASK_BYTES, "certificates of edges are short"
        return answer

    def _is_covered(self, ask: DiscoveryRequest) -> bool:
        coverage = self._broker.coverage
        if coverage is None or (math.isnan(ask.latitude) and math.isnan(ask.longitude)):
            return True
        try:
            place = Place(ask.latitude, ask.longitude)
        except Malformed:
            return False
        return bool(coverage.contains(np.array([place.vector]))[0])
