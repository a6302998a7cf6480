"""The registry: any order and any repetition of the same claims gives the same registry, also after some were withdrawn."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.federation.hub_registry import HubRegistry
from milepost.model.endpoints import EndpointId
from milepost.model.site_records import EdgeRef, EndpointClaim, Epoch

EndedClaim = tuple[EndpointId, EdgeRef]

ENDPOINTS = tuple(EndpointId(name) for name in ("car", "bus"))
EDGES = (EdgeRef("north", "1"), EdgeRef("north", "2"), EdgeRef("south", "1"))
STAYS = st.tuples(st.sampled_from(ENDPOINTS), st.sampled_from(EDGES))
CLAIMS = st.builds(EndpointClaim, st.sampled_from(ENDPOINTS), st.sampled_from(EDGES), st.integers(1, 4).map(Epoch))


def read(claims: list[EndpointClaim], ended: list[EndedClaim]) -> HubRegistry:
    registry = HubRegistry()
    for claim in claims:
        registry.put(claim)
    for endpoint, edge in ended:
        registry.remove(endpoint, edge)
    return registry


def by_definition(claims: list[EndpointClaim], ended: list[EndedClaim], endpoint: EndpointId) -> dict[str, tuple[EdgeRef, Epoch]]:
    """Return the highest claim of each site that was not withdrawn."""
    found: dict[str, tuple[EdgeRef, Epoch]] = {}
    for edge in EDGES:
        epochs = [one.epoch for one in claims if (one.endpoint, one.edge) == (endpoint, edge)]
        if not epochs or (endpoint, edge) in ended:
            continue
        if edge.site not in found or found[edge.site][1] <= max(epochs):
            found[edge.site] = edge, max(epochs)
    return found


@given(st.lists(CLAIMS, max_size=12), st.lists(STAYS, max_size=4), st.data())
def test_any_order_and_repetition_of_claims_gives_the_same_registry(
    claims: list[EndpointClaim], ended: list[EndedClaim], data: st.DataObject
) -> None:
    more = data.draw(st.lists(st.sampled_from(claims), max_size=5)) if claims else []
    again = data.draw(st.permutations(claims + more))
    for registry in (read(claims, ended), read(again, data.draw(st.permutations(ended)))):
        for endpoint in ENDPOINTS:
            by_site = registry.claims_by_site(endpoint)
            expected = by_definition(claims, ended, endpoint)
            assert {one.edge.site: (one.edge, one.epoch) for one in by_site} == expected
            assert [one.epoch for one in by_site] == sorted((one.epoch for one in by_site), reverse=True)
            assert registry.winner(endpoint) == (by_site[0] if by_site else None)
            assert (endpoint in registry.split) == (len(expected) > 1)
