"""Sites with a key each: sessions and messages move between their edges and through the central hub as without."""

from collections.abc import Iterator

import pytest

from live.federation.client_pool import ClientPool
from live.federation.conftest import HANDOVER_TIMEOUT_S
from live.federation.deployment import Deployment, ask, deployment_in
from live.federation.roaming_clients import LeaveMode
from milepost.cli.main import main


@pytest.fixture
def keyed_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """north: n1, n2; south: s1; and the central hub, which has both keys."""
    with deployment_in(tmp_path_factory.mktemp("keyed")) as deployment:
        for site, edges in (("north", ("n1", "n2")), ("south", ("s1",))):
            key = str(deployment.folder / f"{site}.key")
            assert main(["trust", "site-key", key]) == 0
            deployment.add_site(site, key=key)
            for name in edges:
                deployment.add_edge(site, name, limits=f"handover_timeout_s = {HANDOVER_TIMEOUT_S}", starts=False)
        deployment.add_hub(starts=False)
        deployment.repair()
        yield deployment
        assert deployment.faults() == []


def test_an_endpoint_moving_between_edges_of_sites_with_keys_loses_nothing(
    keyed_deployment: Deployment, pool: ClientPool, name: str
) -> None:
    edges = keyed_deployment.edges
    publishers = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for publisher in publishers:
        pool.publisher(publisher, edges[publisher.rpartition("-")[2]], topic=f"{name}/{publisher}", qos=2, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", edges["n1"], f"{name}/#", of=publishers)
    for leave in LeaveMode:
        for target in ("n2", "s1", "n1"):
            assert pool.arrive(subscriber.name, edges[target], leave), f"to {target}, {leave.value}"
            for publisher in publishers:
                pool.wait_seen(subscriber.name, publisher, 2)
    pool.finish()
    pool.check()
    for edge in edges.values():
        assert "milepost_site_refused_total 0" in ask(edge.http, "/metrics")
        assert "record of the log refused" not in edge.log()
