"""Sessions belong to their owner at an edge: a stranger with the same client id gets nothing, and the owner loses nothing."""

import pytest

from edge_in_memory import Client, EdgeInMemory
from milepost.broker.admission import AdmissionRules
from milepost.model.reasons import Reason
from milepost.vetting.ownership import OtherUserPolicy
from milepost.wire.mqtt import Code, Connack, Connect, Properties, Version, Will

KEPT = Properties(session_expiry_s=300)


def join(edge: EdgeInMemory, user: str | None, *, clean: bool = False, will: Will | None = None) -> Client:
    client = edge.open_connection()
    client.stream.user = user
    client.send(Connect("car", Version.V5, clean, 0, will, properties=KEPT))
    edge.run_ticks()
    return client


def connack_of(client: Client) -> Connack:
    client.read_packets()
    assert client.connack is not None
    return client.connack


def edge_with_a_kept_session(policy: OtherUserPolicy = OtherUserPolicy.REFUSE, *, user: str | None = "ada") -> EdgeInMemory:
    edge = EdgeInMemory(rules=AdmissionRules(other_user=policy))
    car = join(edge, user, will=Will("gone", b"car", 1, False, Properties(will_delay_s=60)))
    car.subscribe("t", qos=1)
    car.drop_connection()
    edge.connect("sender").publish("t", b"for ada", qos=1)
    return edge


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("stranger", ["mallory", None])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_stranger_is_refused_and_the_owner_finds_its_session_and_queue(
    stranger: str | None, clean: bool, restarts: bool
) -> None:
    edge = edge_with_a_kept_session()
    edge = edge.restarted() if restarts else edge
    refused = connack_of(join(edge, stranger, clean=clean))
    assert (refused.code, refused.session_present) == (Code.NOT_AUTHORIZED, False)
    assert "SESSION_OF_ANOTHER_OWNER" in (refused.properties.reason_string or "")
    ada = join(edge, "ada")
    assert connack_of(ada).session_present
    assert ada.bodies() == [b"for ada"]


@pytest.mark.parametrize(("user", "policy"), [("ada", OtherUserPolicy.NEW), (None, OtherUserPolicy.REFUSE)])
def test_a_replaced_session_leaves_neither_queue_nor_will(user: str | None, policy: OtherUserPolicy) -> None:
    edge = edge_with_a_kept_session(policy, user=user)
    watcher = edge.connect("watcher")
    watcher.subscribe("gone", qos=1)
    mallory = join(edge, "mallory")
    assert (connack_of(mallory).code, connack_of(mallory).session_present) == (Code.SUCCESS, False)
    edge.pass_time(120)
    assert (mallory.bodies(), watcher.bodies()) == ([], [])
    assert edge.broker.counts.dropped[Reason.SESSION_TAKEN_OVER] == 1
    assert edge.broker.counts.sessions_replaced == 1
    assert edge.session("car").identity.user == "mallory"


def test_an_expired_session_belongs_to_nobody() -> None:
    edge = edge_with_a_kept_session()
    edge.now = type(edge.now)(edge.now + 301 * 1_000_000_000)
    assert connack_of(join(edge, "mallory")).code is Code.SUCCESS
