"""Every test that takes `edge` is run with a sealed and with a plain one."""

import pytest

from udp_edge_in_memory import UdpEdge


@pytest.fixture(params=[True, False], ids=["sealed", "plain"])
def edge(request: pytest.FixtureRequest) -> UdpEdge:
    return UdpEdge(is_sealed=request.param)
