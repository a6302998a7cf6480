"""Foreign clients: mosquitto_pub, mosquitto_sub and mosquitto_rr, as people use them in a shell, at an edge (D1)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.mqtt.brokers import Broker, Setup
from live.mqtt.certificates import Certificates
from live.mqtt.commands import VERSIONS, pub, run, running_command, sub, wait_shared
from live.mqtt.packets import V4, V5, P
from live.mqtt.raw_client import RawClient

BOTH = pytest.mark.parametrize("level", [V4, V5])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that knows one user."""
    broker = Broker(Setup(tmp_path_factory.mktemp("guarded"), users={"ada": "swordfish", "bob": "pass:with:colons"}))
    broker.start()
    yield broker
    broker.end()
    assert broker.faults() == []


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mosquitto_sub_prints_what_mosquitto_pub_publishes(broker: Broker, name: str, level: int, qos: int) -> None:
    with sub(broker.tcp, level, "-t", f"{name}/#", "-q", "2") as client:
        pub(broker.tcp, level, "-t", f"{name}/x", "-m", "hello wörld", "-q", str(qos))
        assert client.wait_messages(1) == [f"{name}/x {qos} 0 hello wörld"]


@BOTH
def test_lines_from_standard_input_arrive_in_order(broker: Broker, name: str, level: int) -> None:
    lines = [f"line {number}" for number in range(200)]
    with sub(broker.tcp, level, "-t", name, "-q", "1", form="%p") as client:
        pub(broker.tcp, level, "-t", name, "-l", "-q", "1", stdin="\n".join(lines).encode())
        assert client.wait_messages(200) == lines


@BOTH
def test_a_file_is_sent_as_one_message(broker: Broker, name: str, level: int, tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"z" * 1_000_000)
    with sub(broker.tcp, level, "-t", name, "-q", "2", form="%l") as client:
        pub(broker.tcp, level, "-t", name, "-f", str(path), "-q", "2")
        assert client.wait_messages(1) == ["1000000"]


@BOTH
def test_retained_messages_are_set_and_removed(broker: Broker, name: str, level: int) -> None:
    pub(broker.tcp, level, "-t", name, "-m", "kept", "-r", "-q", "1")
    with sub(broker.tcp, level, "-t", name) as client:
        assert client.wait_messages(1) == [f"{name} 0 1 kept"]
    pub(broker.tcp, level, "-t", name, "-n", "-r", "-q", "1")
    with sub(broker.tcp, level, "-t", name) as client:
        pub(broker.tcp, level, "-t", name, "-m", "live", "-q", "1")
        assert client.wait_messages(1) == [f"{name} 0 0 live"]


@BOTH
def test_the_will_of_a_killed_client_is_published(broker: Broker, name: str, level: int) -> None:
    will = ["--will-topic", f"{name}/will", "--will-payload", "died", "--will-qos", "1"]
    with sub(broker.tcp, level, "-t", f"{name}/#", "-q", "1") as watcher:
        with sub(broker.tcp, level, "-t", "other", *will) as doomed:
            doomed.process.kill()
        assert watcher.wait_messages(1) == [f"{name}/will 1 0 died"]


@BOTH
def test_a_durable_session_is_resumed_by_mosquitto_sub(broker: Broker, name: str, level: int) -> None:
    lasting = ["-i", name, "-c", "-q", "1", *(["-x", "300"] if level == V5 else [])]
    with sub(broker.tcp, level, "-t", name, *lasting) as client:
        client.process.terminate()
        client.process.wait()
    for number in range(5):
        pub(broker.tcp, level, "-t", name, "-m", str(number), "-q", "1")
    with sub(broker.tcp, level, "-t", name, *lasting, form="%p") as client:
        assert client.wait_messages(5) == list("01234")


@BOTH
@pytest.mark.parametrize("door", ["tls", "mutual"])
def test_messages_pass_through_tls(broker: Broker, certificates: Certificates, name: str, level: int, door: str) -> None:
    port: int = getattr(broker, door)
    secure = ["--cafile", str(certificates.ca)]
    if door == "mutual":
        secure += ["--cert", str(certificates.client), "--key", str(certificates.client_key)]
    with sub(port, level, "-t", name, *secure) as client:
        pub(port, level, "-t", name, "-m", "secret", "-q", "1", *secure)
        assert client.wait_messages(1) == [f"{name} 0 0 secret"]


@BOTH
def test_a_client_that_trusts_another_authority_does_not_connect(
    broker: Broker, certificates: Certificates, name: str, level: int
) -> None:
    mistaken = ["--cafile", str(certificates.stranger)]
    done = run("pub", "-h", "127.0.0.1", "-p", str(broker.tls), "-V", VERSIONS[level], *mistaken, "-t", name, "-m", "x")
    assert done.returncode != 0


@BOTH
@pytest.mark.parametrize("shown", ["nothing", "a stranger's"])
def test_a_connection_without_a_valid_client_certificate_is_refused(
    broker: Broker, certificates: Certificates, name: str, level: int, shown: str
) -> None:
    secure = ["--cafile", str(certificates.ca)]
    if shown != "nothing":
        secure += ["--cert", str(certificates.stranger), "--key", str(certificates.stranger_key)]
    done = run(
        "pub", "-h", "127.0.0.1", "-p", str(broker.mutual), "-V", VERSIONS[level], *secure, "-t", name, "-m", "x", "-q", "1"
    )
    assert done.returncode != 0


@BOTH
@pytest.mark.parametrize(("user", "password"), [("ada", "swordfish"), ("bob", "pass:with:colons")])
def test_a_known_user_is_admitted(guarded: Broker, name: str, level: int, user: str, password: str) -> None:
    with sub(guarded.tcp, level, "-t", name, "-u", user, "-P", password) as client:
        pub(guarded.tcp, level, "-t", name, "-m", "x", "-u", "ada", "-P", "swordfish")
        assert client.wait_messages(1) == [f"{name} 0 0 x"]


@BOTH
@pytest.mark.parametrize(
    "credentials",
    [[], ["-u", "ada"], ["-u", "ada", "-P", "swordfisH"], ["-u", "ada", "-P", ""], ["-u", "eve", "-P", "swordfish"]],
)
def test_unknown_users_and_wrong_passwords_are_refused(guarded: Broker, name: str, level: int, credentials: list[str]) -> None:
    """[MQTT-3.1.4-2]: return code 4 or 5, reason 0x86 or 0x87."""
    done = run("pub", "-h", "127.0.0.1", "-p", str(guarded.tcp), "-V", VERSIONS[level], "-t", name, "-m", "x", *credentials)
    assert done.returncode in ((4, 5) if level == V4 else (0x86, 0x87)), done.stderr.decode()


def test_properties_of_version_5_pass_from_mosquitto_pub_to_mosquitto_sub(broker: Broker, name: str) -> None:
    properties = {
        "content-type": "text/plain",
        "response-topic": "answers",
        "correlation-data": "42",
        "payload-format-indicator": "1",
    }
    options = [part for key, value in properties.items() for part in ("-D", "publish", key, value)]
    options += ["-D", "publish", "user-property", "colour", "red", "-D", "publish", "message-expiry-interval", "100"]
    with sub(broker.tcp, V5, "-t", name, "-D", "subscribe", "subscription-identifier", "9", form="%C|%R|%D|%F|%P|%S") as client:
        pub(broker.tcp, V5, "-t", name, "-m", "x", *options)
        assert client.wait_messages(1) == ["text/plain|answers|42|1|colour:red|9"]


def test_mosquitto_pub_uses_topic_aliases(broker: Broker, name: str) -> None:
    with sub(broker.tcp, V5, "-t", name, form="%p") as client:
        pub(broker.tcp, V5, "-t", name, "-l", "-D", "publish", "topic-alias", "10", stdin=b"a\nb\nc\n")
        assert client.wait_messages(3) == ["a", "b", "c"]


@BOTH
def test_two_of_a_group_share_the_messages(broker: Broker, name: str, level: int) -> None:
    shared = ["-t", f"$share/group/{name}", "-q", "1"]
    with sub(broker.tcp, level, *shared, form="%p") as one, sub(broker.tcp, level, *shared, form="%p") as other:
        pub(broker.tcp, level, "-t", name, "-l", "-q", "1", stdin=b"a\nb\nc\nd\n")
        assert sorted(wait_shared([one, other], 4)) == ["a", "b", "c", "d"]


@BOTH
def test_mosquitto_rr_receives_its_response(broker: Broker, name: str, level: int) -> None:
    """Request and response (4.10): over the response topic, with correlation data in version 5."""
    with RawClient(broker.tcp, level=level) as service:
        service.join("")
        service.subscribe((f"{name}/ask", 1))
        basics = ["-h", "127.0.0.1", "-p", str(broker.tcp), "-V", VERSIONS[level], "-t", f"{name}/ask", "-e", f"{name}/answer"]
        more = ["-D", "publish", "correlation-data", "17"] if level == V5 else []
        with running_command("rr", *basics, "-m", "how far?", "-F", "MSG %p", *more) as requester:
            request = service.message()
            assert request.payload == b"how far?"
            assert level == V4 or (request.one(P.RESPONSE_TOPIC), request.one(P.CORRELATION_DATA)) == (f"{name}/answer", b"17")
            service.publish(f"{name}/answer", b"three miles")
            assert requester.wait_messages(1) == ["three miles"]
            assert requester.process.wait(10) == 0


@BOTH
def test_the_broker_publishes_its_version(broker: Broker, level: int) -> None:
    with sub(broker.tcp, level, "-t", "$SYS/broker/version", form="%r %p") as client:
        is_retained, _, version = client.wait_messages(1)[0].partition(" ")
        assert is_retained == "1"
        assert any(character.isdigit() for character in version)
