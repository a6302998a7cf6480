"""Attack: a user with valid credentials uses the client id of another user to get that user's kept session and its queue."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.federation.deployment import Deployment, deployment_in, settings_table, wait_until
from live.mqtt.brokers import Broker
from live.mqtt.conftest import make_broker, open_files  # noqa: F401  # fixtures
from live.mqtt.connections import MakeBroker
from live.mqtt.packets import Kind, P
from live.mqtt.raw_client import RawClient
from live.udp.edges import UdpEdge, edge_in
from milepost.runtime.passwords import set_password

USERS: Final = {"ada": "a", "mallory": "m"}
CAR: Final = "car-1"
KEPT: Final = [(P.SESSION_EXPIRY, 300)]
NOT_AUTHORIZED: Final = 0x87


def write_users(folder: Path) -> Path:
    for user, password in USERS.items():
        set_password(folder / "users", user, password.encode())
    return folder / "users"


def join(edge: Broker, user: str, *, clean: bool = False) -> tuple[RawClient, int, bool]:
    """Connect as a user with the client id of ada's car; return the connection, the reason code and session present."""
    client = RawClient(edge.tcp)
    answer = client.try_join(CAR, clean=clean, props=KEPT, user=user, password=USERS[user].encode())
    return client, answer.reason, answer.session_present


def leave_a_message_for_ada(edge: Broker) -> None:
    """Keep a session of ada, with a message in its queue."""
    ada, reason, _ = join(edge, "ada", clean=True)
    assert reason == 0
    ada.subscribe(("private", 1))
    ada.leave()
    publish(edge, b"for ada")


def publish(edge: Broker, body: bytes) -> None:
    with RawClient(edge.tcp) as publisher:
        publisher.join("dispatcher", user="ada", password=b"a")
        publisher.publish("private", body, qos=1)


def received(client: RawClient) -> list[bytes]:
    """Return the messages that came until an answer to PING."""
    client.send(bytes((0xC0, 0)))
    client.take(Kind.PINGRESP)
    return [one.payload for one in client.inbox if one.kind is Kind.PUBLISH]


def assert_ada_has_her_session(edge: Broker) -> None:
    ada, reason, is_present = join(edge, "ada")
    with ada:
        assert (reason, is_present) == (0, True)
        assert ada.message().payload == b"for ada"


@pytest.mark.parametrize("clean", [False, True], ids=["resume", "clean start"])
@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "after a restart"])
def test_another_user_is_refused_and_the_session_stays(make_broker: MakeBroker, clean: bool, restarts: bool) -> None:  # noqa: F811
    edge = make_broker(users=USERS)
    leave_a_message_for_ada(edge)
    if restarts:
        edge.kill()
        edge.start()
    mallory, reason, is_present = join(edge, "mallory", clean=clean)
    with mallory:
        assert (reason, is_present) == (NOT_AUTHORIZED, False)
    assert_ada_has_her_session(edge)


def test_a_connected_session_is_not_taken_over_by_another_user(make_broker: MakeBroker) -> None:  # noqa: F811
    edge = make_broker(users=USERS)
    ada, *_ = join(edge, "ada", clean=True)
    with ada:
        mallory, reason, _ = join(edge, "mallory")
        mallory.close()
        assert reason == NOT_AUTHORIZED
        assert ada.is_open()


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "after a restart"])
def test_with_the_policy_new_another_user_gets_an_empty_session(
    make_broker: MakeBroker,  # noqa: F811
    tmp_path: Path,
    restarts: bool,
) -> None:
    edge = make_broker(more=f'[access]\nusers = "{write_users(tmp_path)}"\nother_user = "new"\n')
    leave_a_message_for_ada(edge)
    if restarts:
        edge.kill()
        edge.start()
    mallory, reason, is_present = join(edge, "mallory")
    with mallory:
        assert (reason, is_present) == (0, False)
        assert received(mallory) == []
        publish(edge, b"later")
        assert received(mallory) == [], "the subscription has ended with the session"


def test_a_user_cannot_occupy_the_client_id_of_another_one_where_ids_are_bound_to_users(
    make_broker: MakeBroker,  # noqa: F811
    tmp_path: Path,
) -> None:
    edge = make_broker(more=f'[access]\nusers = "{write_users(tmp_path)}"\nclient_ids = "user"\n')
    for user, client_id, is_refused in (("mallory", "ada", True), ("mallory", "ada/car", True), ("ada", "ada/car", False)):
        with RawClient(edge.tcp) as client:
            answer = client.try_join(client_id, user=user, password=USERS[user].encode())
            assert bool(answer.reason) is is_refused


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Deployment]:
    """north: n1 and n2, with the same users."""
    for user, password in USERS.items():
        set_password(tmp_path / "users", user, password.encode())
    with deployment_in(tmp_path) as deployment:
        table = f'[site]\n{settings_table(deployment.add_site("north"))}\n[access]\nusers = "{tmp_path / "users"}"'
        for name in ("n1", "n2"):
            deployment.edges[name] = _edge(tmp_path / name, name, table)
            deployment.edges[name].start()
        yield deployment
        assert deployment.faults() == []


def _edge(folder: Path, name: str, table: str) -> UdpEdge:
    folder.mkdir()
    return edge_in(folder, None, more=table, name=name)


def test_at_another_edge_another_user_gets_neither_the_session_nor_its_queue(site: Deployment) -> None:
    home, other = site.edges["n1"], site.edges["n2"]
    leave_a_message_for_ada(home)

    def is_refused() -> bool:
        mallory, reason, is_present = join(other, "mallory")
        with mallory:
            assert not is_present, "mallory got the session of ada"
            return reason == NOT_AUTHORIZED

    wait_until(is_refused, "n2 has read the claim of n1")
    assert_ada_has_her_session(other)
