"""Addresses: by endpoint, by content, by area, to those notified and to all (M5), and the audience of each."""

import pytest

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified, includes
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason

HERE = Circle(Place(1.0, 2.0), 500.0)


def test_m5_the_ways_to_address_are_different_addresses() -> None:
    addresses: set[Address] = {ToEndpoint(EndpointId("a")), ToContent(), ToContent(HERE), ToArea(HERE), ToEveryone()}
    assert len(addresses) == 5


def test_addresses_are_compared_by_value() -> None:
    assert ToContent() == ToContent(None)
    assert ToArea(HERE) == ToArea(Circle(Place(1.0, 2.0), 500.0))
    assert ToArea(HERE) != ToArea(Circle(Place(1.0, 2.0), 501.0))


@pytest.mark.parametrize("name", ["", "a\0", "x" * 129])
def test_an_address_with_an_invalid_endpoint_id_is_refused(name: str) -> None:
    with pytest.raises(Malformed) as caught:
        ToEndpoint(EndpointId(name))
    assert caught.value.reason is Reason.ENDPOINT_ID


INSIDE, OUTSIDE = Place(1.0, 2.0), Place(1.1, 2.0)


@pytest.mark.parametrize(
    ("address", "inside", "outside", "unplaced"),
    [
        (ToEndpoint(EndpointId("a")), True, True, True),
        (ToEndpoint(EndpointId("b")), False, False, False),
        (ToContent(), True, True, True),
        (ToContent(HERE), True, False, None),
        (ToArea(HERE), True, False, None),
        (ToEveryone(), True, True, True),
    ],
)
def test_m5_an_endpoint_is_in_the_audience_by_name_or_by_place(
    address: Address, inside: bool, outside: bool, unplaced: bool | None
) -> None:
    """Where the place decides and is not known (None in the table), the caller does."""
    for place, expected in ((INSIDE, inside), (OUTSIDE, outside)):
        assert includes(address, EndpointId("a"), place, was_notified=False) is expected
    for if_unplaced in (False, True):
        found = includes(address, EndpointId("a"), None, was_notified=False, if_unplaced=if_unplaced)
        assert found is (if_unplaced if unplaced is None else unplaced)


def test_m5_only_endpoints_that_were_notified_are_in_the_audience_of_those_notified() -> None:
    address = ToNotified(("I-1",))
    assert [includes(address, EndpointId("a"), INSIDE, was_notified=was) for was in (False, True)] == [False, True]
