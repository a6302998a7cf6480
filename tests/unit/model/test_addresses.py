"""Addresses: by endpoint, by content, by area, and to all (M5; the types only, delivery is not built)."""

import pytest

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason

HERE = Circle(Place(1.0, 2.0), 500.0)


def test_m5_the_ways_to_address_are_different_addresses() -> None:
    addresses: set[Address] = {ToEndpoint(EndpointId("a")), ToContent(), ToContent(HERE), ToArea(HERE), ToEveryone()}
    assert len(addresses) == 5


def test_equal_addresses_are_equal_whoever_made_them() -> None:
    assert ToContent() == ToContent(None)
    assert ToArea(HERE) == ToArea(Circle(Place(1.0, 2.0), 500.0))
    assert ToArea(HERE) != ToArea(Circle(Place(1.0, 2.0), 501.0))


@pytest.mark.parametrize("name", ["", "a\0", "x" * 129])
def test_nobody_is_addressed_by_a_name_that_no_endpoint_has(name: str) -> None:
    with pytest.raises(Malformed) as caught:
        ToEndpoint(EndpointId(name))
    assert caught.value.reason is Reason.ENDPOINT_ID
