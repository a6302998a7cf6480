"""Tests with the fixture `edge` run with an encrypted and with an unencrypted edge."""

import pytest

from udp_edge_in_memory import UdpEdge


@pytest.fixture(params=[True, False], ids=["sealed", "plain"])
def edge(request: pytest.FixtureRequest) -> UdpEdge:
    return UdpEdge(is_sealed=request.param)
