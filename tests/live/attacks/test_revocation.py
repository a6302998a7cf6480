"""Revocation under attack: lists that are damaged, missing, foreign or old must not let a revoked certificate back in."""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

from live.client.deadline import run
from live.mqtt.brokers import OPEN_RULE
from live.udp.edges import HERE, UdpEdge, edge_in, wait_until
from live.udp.local_authority import LocalAuthority
from milepost.client import Client, ClientState, EdgeUnreachable, RefusedByEdge, connect
from milepost.model.instants import Instant
from milepost.runtime.certificate_authority import REVOKED, revoke_in

ALERTS = '[[rules.alert]]\ntopic = "Emergency"\n'
WARNED_S = 5.0


@pytest.fixture
def authority(tmp_path: Path) -> LocalAuthority:
    return LocalAuthority.open(tmp_path)


@pytest.fixture
def edge(tmp_path: Path, authority: LocalAuthority) -> Iterator[UdpEdge]:
    """An edge that is not started yet."""
    (tmp_path / "edge").mkdir()
    one = edge_in(tmp_path / "edge", authority, more=ALERTS + OPEN_RULE)
    yield one
    one.end()
    assert one.faults() == []


def revoke(authority: LocalAuthority, name: str) -> None:
    assert revoke_in(authority.folder, [name], Instant(time.time_ns()))


def is_refused(edge: UdpEdge, name: str) -> bool:
    async def work() -> bool:
        try:
            async with edge.client(name):
                return False
        except RefusedByEdge as refused:
            return "CERTIFICATE_REVOKED" in str(refused)

    return run(work())


def wait_for_log(edge: UdpEdge, text: str, count: int = 1) -> None:
    until = time.monotonic() + WARNED_S
    while edge.log().count(text) < count:
        assert time.monotonic() < until, edge.log()[-3000:]
        time.sleep(0.05)


def damage(authority: LocalAuthority) -> None:
    path = authority.folder / REVOKED
    path.write_text(path.read_text()[:-20])


def remove(authority: LocalAuthority) -> None:
    (authority.folder / REVOKED).unlink()


def forge(authority: LocalAuthority) -> None:
    """Replace the list by that of another authority, which revokes nothing."""
    (authority.folder.parent / "elsewhere").mkdir()
    other = LocalAuthority.open(authority.folder.parent / "elsewhere")
    shutil.copy(other.folder / REVOKED, authority.folder / REVOKED)


@pytest.mark.parametrize("attack", [damage, remove, forge])
def test_an_edge_does_not_start_without_a_valid_revocation_list(
    edge: UdpEdge, authority: LocalAuthority, attack: Callable[[LocalAuthority], None]
) -> None:
    attack(authority)
    with pytest.raises(pytest.fail.Exception, match="ended with 2 instead of starting"):
        edge.start()
    assert str(authority.folder / REVOKED) in edge.log()


def test_a_damaged_list_does_not_let_a_revoked_endpoint_back_in(edge: UdpEdge, authority: LocalAuthority) -> None:
    authority.credentials("truck-17")
    edge.start()
    assert not is_refused(edge, "truck-17")
    revoke(authority, "truck-17")
    wait_for_log(edge, "revocation list loaded revoked=1")
    for number, attack in enumerate((damage, forge), start=1):
        attack(authority)
        wait_for_log(edge, "revocation list not loaded; the last good one stays in force", number)
        assert is_refused(edge, "truck-17")
    remove(authority)
    assert is_refused(edge, "truck-17")


def test_an_older_list_is_refused_while_the_edge_runs_and_after_its_restart(edge: UdpEdge, authority: LocalAuthority) -> None:
    authority.credentials("truck-17")
    before = (authority.folder / REVOKED).read_bytes()
    edge.start()
    revoke(authority, "truck-17")
    wait_for_log(edge, "revocation list loaded revoked=1")
    (authority.folder / REVOKED).write_bytes(before)
    wait_for_log(edge, "older than the one in use")
    assert is_refused(edge, "truck-17")
    edge.stop()
    edge.start()
    assert is_refused(edge, "truck-17")
    assert "configured revocation list is older than the last accepted one" in edge.log()


def test_clients_refuse_the_alerts_of_a_revoked_edge(edge: UdpEdge, authority: LocalAuthority) -> None:
    edge.start()

    async def alerts(clients: list[Client]) -> None:
        over_mqtt, over_udp = clients
        async with over_mqtt, over_udp, over_mqtt.messages() as first, over_udp.messages() as second:
            await over_mqtt.report(HERE.latitude, HERE.longitude)
            await over_mqtt.publish("Emergency", b"rocks", place=HERE, qos=1)
            for inbox in (first, second):
                assert (await inbox.receive()).signer == ("edge", edge.name)
            await asyncio.to_thread(revoke, authority, edge.name)
            await asyncio.to_thread(wait_for_log, edge, "list of revoked signers loaded revoked=1")
            await over_mqtt.publish("Emergency", b"ice", place=HERE, qos=1)
            await wait_until(lambda: over_mqtt.counters.forged > 0)
            await wait_until(lambda: over_udp.state is ClientState.RECONNECTING)
            assert len(first) == len(second) == 0
            assert edge.metrics()["milepost_alerts_total"] == 2

    run(alerts([connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id="driver", ca=authority.ca_file), edge.client("truck-17")]))
    over_mqtt = connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id="late-driver", ca=authority.ca_file)

    async def late() -> None:
        async with over_mqtt, over_mqtt.messages() as inbox:
            await over_mqtt.publish("elsewhere", qos=1)  # the list is subscribed to before, and has arrived by now
            await over_mqtt.report(HERE.latitude, HERE.longitude)
            await over_mqtt.publish("Emergency", b"fog", place=HERE, qos=1)
            await wait_until(lambda: over_mqtt.counters.forged > 0)
            assert len(inbox) == 0

    run(late())


def readiness(edge: UdpEdge) -> tuple[int, str]:
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{edge.http}/ready", timeout=WARNED_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_revoked_edge_does_not_start_again_and_is_not_ready(edge: UdpEdge, authority: LocalAuthority) -> None:
    def revoke_it() -> None:
        assert readiness(edge) == (200, "ready\n")
        revoke(authority, edge.name)
        wait_for_log(edge, "this edge signs nothing more and is not ready")
        status, text = readiness(edge)
        assert status == 503
        assert "trust: the certificate of this edge is revoked" in text

    def start_again() -> None:
        edge.stop()
        with pytest.raises(pytest.fail.Exception, match="ended with 2 instead of starting"):
            edge.start()
        assert "the certificate of this edge is revoked: issue a new one" in edge.log()

    def renew() -> None:
        for kind in ("cert", "key"):
            (authority.issued / f"{edge.name}.{kind}").unlink()
        authority.issue_edge(edge.name)
        edge.start()
        assert readiness(edge) == (200, "ready\n")

    async def work() -> None:
        async with edge.client("driver") as driver:
            await asyncio.to_thread(revoke_it)
            await wait_until(lambda: driver.state is ClientState.RECONNECTING)
            with pytest.raises(EdgeUnreachable, match="no edge certified by the certificate authority answered"):
                await edge.client("late-driver", connect_within_s=2.0).open()
            await asyncio.to_thread(start_again)
            assert driver.counters.connections == 1
            await asyncio.to_thread(renew)
            await wait_until(lambda: driver.state is ClientState.CONNECTED)

    edge.start()
    run(work())


def test_a_client_cannot_publish_a_list_of_revoked_signers(edge: UdpEdge) -> None:
    edge.start()

    async def work() -> None:
        async with edge.mqtt_client("stranger") as stranger:
            with pytest.raises(RefusedByEdge):
                await stranger.publish("$milepost/revocations", b"nothing is revoked", qos=1, retain=True)

    run(work())
