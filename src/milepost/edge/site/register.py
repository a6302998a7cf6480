"""The register of a site as its edges see it: which edge has claimed which endpoint, and with what epoch (D8).

What must hold: the claim with the highest epoch counts, in whatever order claims are read; each edge takes back its own.
"""

from milepost.model.endpoints import EndpointId
from milepost.model.sites import Claim, EdgeRef, Epoch

_NONE: dict[EdgeRef, Claim] = {}


class SiteRegister:
    """Claims by endpoint and edge."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._claims: dict[EndpointId, dict[EdgeRef, Claim]] = {}
        self.dropped = 0
        """Claims for which there was no room: their endpoints are asked about at the centre."""

    def __len__(self) -> int:
        return len(self._claims)

    def put(self, claim: Claim) -> bool:
        """An edge has an endpoint; tells whether that is new."""
        claims = self._claims.get(claim.endpoint)
        if claims is None:
            if len(self._claims) >= self._limit:
                self.dropped += 1
                return False
            claims = self._claims[claim.endpoint] = {}
        before = claims.get(claim.edge)
        if before is not None and (before.epoch, before.anew) >= (claim.epoch, claim.anew):
            return False
        claims[claim.edge] = claim
        return True

    def take_away(self, endpoint: EndpointId, edge: EdgeRef) -> None:
        """An edge has nothing of an endpoint any more."""
        claims = self._claims.get(endpoint)
        if claims is not None and claims.pop(edge, None) is not None and not claims:
            del self._claims[endpoint]

    def latest(self, endpoint: EndpointId) -> Claim | None:
        """Where an endpoint is."""
        claims = self._claims.get(endpoint, _NONE)
        return max(claims.values(), key=lambda claim: (claim.epoch, claim.edge)) if claims else None

    def of(self, endpoint: EndpointId, edge: EdgeRef) -> Claim | None:
        """The claim of one edge."""
        return self._claims.get(endpoint, _NONE).get(edge)

    def is_claimed_beside(self, endpoint: EndpointId, edge: EdgeRef) -> bool:
        """Whether an edge other than this one has, or had and has not given up, an endpoint."""
        return any(one != edge for one in self._claims.get(endpoint, _NONE))

    def epoch_above(self, endpoint: EndpointId, now: int) -> Epoch:
        """An epoch above every one that is known of an endpoint."""
        claims = self._claims.get(endpoint, _NONE)
        return Epoch(max(now, *(claim.epoch + 1 for claim in claims.values()), 0))

    def claimed_by(self, edge: EdgeRef) -> list[Claim]:
        """All claims of an edge."""
        return [claims[edge] for claims in self._claims.values() if edge in claims]
