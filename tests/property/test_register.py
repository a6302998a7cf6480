"""The register: any order and any repetition of the same claims and ends gives the same register."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.hub.register import Register
from milepost.model.endpoints import EndpointId
from milepost.model.sites import Claim, EdgeRef, Epoch, Gone

ENDPOINTS = tuple(EndpointId(name) for name in ("car", "bus"))
EDGES = (EdgeRef("north", "1"), EdgeRef("north", "2"), EdgeRef("south", "1"))
SAID = st.builds(
    lambda kind, endpoint, edge, epoch: kind(endpoint, edge, Epoch(epoch)),
    st.sampled_from((Claim, Gone)),
    st.sampled_from(ENDPOINTS),
    st.sampled_from(EDGES),
    st.integers(1, 4),
)


def read(said: list[Claim | Gone]) -> Register:
    register = Register()
    for one in said:
        if isinstance(one, Claim):
            register.put(one)
        else:
            register.end(one)
    return register


def by_definition(said: list[Claim | Gone], endpoint: EndpointId) -> dict[str, tuple[EdgeRef, Epoch]]:
    """Of each site the highest claim that nobody has ended."""
    found: dict[str, tuple[EdgeRef, Epoch]] = {}
    for edge in EDGES:
        own = [one for one in said if (one.endpoint, one.edge) == (endpoint, edge)]
        claimed = max((one.epoch for one in own if isinstance(one, Claim)), default=Epoch(0))
        ended = max((one.epoch for one in own if isinstance(one, Gone)), default=Epoch(0))
        if claimed > ended and (edge.site not in found or found[edge.site][1] <= claimed):
            found[edge.site] = edge, claimed
    return found


@given(st.lists(SAID, max_size=12), st.data())
def test_any_order_and_repetition_of_claims_and_ends_gives_one_register(said: list[Claim | Gone], data: st.DataObject) -> None:
    again = data.draw(st.permutations(said + data.draw(st.lists(st.sampled_from(said), max_size=5) if said else st.just([]))))
    for register in (read(said), read(again)):
        for endpoint in ENDPOINTS:
            stands = register.stands(endpoint)
            expected = by_definition(said, endpoint)
            assert {one.edge.site: (one.edge, one.epoch) for one in stands} == expected
            assert [one.epoch for one in stands] == sorted((one.epoch for one in stands), reverse=True)
            assert register.latest(endpoint) == (stands[0] if stands else None)
            assert (endpoint in register.split) == (len(expected) > 1)
