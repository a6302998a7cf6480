"""Claims of one endpoint by several edges: which of them wins. Edges and the central hub decide by the same function.

    between                                 the winner is
    claims of one owner                     the later claim: its edge receives the session
    owners, unequal proof                   the owner with the stronger proof
    owners, equal proof, one yields         the owner that does not (`kept_since` says whether an owner yields)
    owners, equal proof, none yields        the owner that has had the endpoint for longer
    owners, equal proof, both yield         the owner with the later claim

Invariants:
- the order of claims depends on the claims alone, not on the order in which they are read or on the process that compares them;
- an edge whose owner loses ends its session; it hands a session over to the same owner only.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from milepost.model.endpoints import EndpointId
from milepost.model.site_records import NO_EPOCH, EdgeRef, EndpointClaim, Epoch
from milepost.vetting.access import ClientIdentity, IdentityProof
from milepost.vetting.ownership import OtherUserPolicy


def ranked(claims: Collection[EndpointClaim]) -> list[EndpointClaim]:
    """Return the claims of one endpoint by rank, the winning one first."""
    if len(claims) < 2:
        return list(claims)
    ranks = {owner: _rank_of([one for one in claims if one.owner == owner]) for owner in {one.owner for one in claims}}
    return sorted(claims, key=lambda one: (*ranks[one.owner], one.owner, one.epoch, one.edge), reverse=True)


def as_of_owner(claim: EndpointClaim, claims: Iterable[EndpointClaim]) -> EndpointClaim:
    """Return a claim that ranks as its owner does by all *claims*, for a reader that knows none of the others."""
    return replace(claim, kept_since=_earliest(one for one in claims if one.owner == claim.owner))


def _earliest(claims: Iterable[EndpointClaim]) -> Epoch:
    return min((one.kept_since for one in claims if one.kept_since), default=NO_EPOCH)


def _rank_of(claims: list[EndpointClaim]) -> tuple[int, bool, int, int]:
    """Return the rank of an owner by its claims."""
    since = _earliest(claims)
    latest = max(one.epoch for one in claims)
    return max(one.proof for one in claims), since != NO_EPOCH, -since, 0 if since else latest


def kept_since(identity: ClientIdentity, epoch: Epoch, policy: OtherUserPolicy, known: Iterable[EndpointClaim]) -> Epoch:
    """Return since when an owner has an endpoint that it claims now; `NO_EPOCH` if it yields to others, or none can compete.

    *known*: the claims of the endpoint at other edges.
    """
    if identity.proof is not IdentityProof.USER or policy is OtherUserPolicy.NEW:
        return NO_EPOCH
    return min((one.kept_since for one in known if one.owner == identity.owner and one.kept_since), default=epoch)


def claim_for(
    endpoint: EndpointId,
    edge: EdgeRef,
    epoch: Epoch,
    identity: ClientIdentity,
    since: Epoch,
    *,
    clean_start_epoch: Epoch = NO_EPOCH,
    asks_prior_edge: bool = False,
) -> EndpointClaim:
    """Return the claim of an edge for a client's session."""
    return EndpointClaim(
        endpoint,
        edge,
        epoch,
        clean_start_epoch,
        asks_prior_edge,
        proof=int(identity.proof),
        owner=identity.owner,
        kept_since=since,
    )
