"""Claims across sites: who is told that an endpoint is elsewhere, and who, where it was before (D8).

What must hold:
- while an endpoint is in the register at two sites, the edge with the lower epoch is told of the higher one: once by each
  process that acts for the site with the higher one, from when it begins to, and whenever the edge says its claim again: it may
  have been killed, and have forgotten;
- an edge that asks where its endpoint was before is answered, also if the answer is nowhere, or that nobody was there to ask for
  a while; an answer too much does no harm.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from milepost.hub.actions import Append
from milepost.hub.counts import Counts
from milepost.hub.register import Register
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import Claim, Claimed, EdgeRef, Epoch, Prior, inbox_of
from milepost.wire.records import to_record

ANSWERED_WITHIN_NS: Final = 30 * SECOND_NS
"""Older questions are no longer waited for."""
QUESTIONS_MAX: Final = 100_000


class Claims:
    """What edges are told about endpoints that came and went."""

    def __init__(self, register: Register, owned: AbstractSet[str], counts: Counts) -> None:
        self._register = register
        self._owned = owned
        self._counts = counts
        self._told: dict[EndpointId, dict[EdgeRef, Epoch]] = {}
        self._questions: dict[EndpointId, Claim] = {}
        self._appends: list[Append] = []

    def changed(self, endpoint: EndpointId, claimant: EdgeRef | None = None) -> None:
        """The register has something new about an endpoint, because an edge claimed it or took its claim back."""
        stands = self._register.stands(endpoint)
        if len(stands) < 2:
            self._told.pop(endpoint, None)
            return
        first, *lower = stands
        if first.edge.site not in self._owned:
            return
        told = self._told.setdefault(endpoint, {})
        for claim in lower:
            if claim.edge == claimant or told.get(claim.edge) != first.epoch:
                told[claim.edge] = first.epoch
                self._counts.claims_told += 1
                self._append(claim.edge, endpoint, to_record(Claimed(first)))

    def asked(self, claim: Claim) -> None:
        """An edge wants to know where the endpoint that it claims was before."""
        self._questions.pop(claim.endpoint, None)
        self._questions[claim.endpoint] = claim
        if len(self._questions) > QUESTIONS_MAX:
            del self._questions[next(iter(self._questions))]
        if claim.edge.site in self._owned:
            self._answer(claim)

    def begin(self, site: str, now: Instant) -> None:
        """Act for a site from now on: tell again what whoever did before may not have told."""
        for endpoint in list(self._register.split):
            latest = self._register.latest(endpoint)
            if latest is not None and latest.edge.site == site:
                self._told.pop(endpoint, None)
                self.changed(endpoint)
        for claim in self._questions.values():
            if claim.edge.site == site and claim.epoch > now - ANSWERED_WITHIN_NS:
                self._answer(claim)

    def tick(self, now: Instant) -> None:
        """Forget questions that nobody waits for."""
        while self._questions:
            endpoint, claim = next(iter(self._questions.items()))
            if claim.epoch > now - ANSWERED_WITHIN_NS:
                break
            del self._questions[endpoint]

    def take_appends(self) -> list[Append]:
        """What is to be said."""
        appends, self._appends = self._appends, []
        return appends

    def _answer(self, claim: Claim) -> None:
        others = [one for one in self._register.stands(claim.endpoint) if one.edge.site != claim.edge.site]
        prior = next((one.edge for one in others if one.epoch < claim.epoch), None)
        self._counts.questions_answered += 1
        self._append(claim.edge, claim.endpoint, to_record(Prior(claim.endpoint, claim.epoch, prior)))

    def _append(self, edge: EdgeRef, endpoint: EndpointId, value: bytes) -> None:
        self._appends.append(Append(edge.site, inbox_of(edge), endpoint, value))
