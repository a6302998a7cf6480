"""Foreign clients: MQTT.js, as browsers and Node use it, over WebSocket (subprotocol mqtt), WebSocket in TLS, and TCP."""

import json
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from live.mqtt.brokers import Broker
from live.mqtt.certificates import Certificates
from live.mqtt.commands import RunningCommand
from live.mqtt.packets import V4, V5
from parts import ROOT, need

NODE = Path(__file__).parent / "node"
INSTALL_S = 120
TRANSPORTS = pytest.mark.parametrize("transport", ["ws", "wss", "tcp"])
BOTH = pytest.mark.parametrize("level", [V4, V5])


@pytest.fixture(scope="session")
def modules() -> Path:
    """Return the folder of the modules in package-lock.json, installed once per lock file."""
    lock = (NODE / "package-lock.json").read_bytes()
    folder = ROOT / ".cache" / f"mqttjs-{sha256(lock).hexdigest()[:12]}"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE / name, folder)
        command = [need("npm", debian="nodejs"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            pytest.skip(f"npm could not install MQTT.js: {done.stderr[-500:]}; fix: cd {folder} && npm ci")
        (folder / "installed").touch()
    return folder / "node_modules"


class MqttJs(RunningCommand):
    """The client of node/client.cjs, controlled line by line."""

    def send_command(self, **command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def publish(self, topic: str, payload: bytes, **options: object) -> None:
        """Publish, and wait until the exchange is over."""
        done = len(self.events("published"))
        self.send_command(publish=[topic, b64encode(payload).decode(), options])
        assert self.wait("published", done + 1)[-1] is True

    def wait(self, event: str, count: int = 1) -> list[Any]:
        """Return the values of an event, once there are *count* of them."""
        self.wait_line(lambda _: len(self.events(event)) >= count)
        return self.events(event)

    def events(self, event: str) -> list[Any]:
        found = [json.loads(line) for line in self.lines]
        return [one[event] for one in found if event in one]


Join = Callable[..., Any]


@pytest.fixture
def join(broker: Broker, certificates: Certificates, modules: Path) -> Join:
    @contextmanager
    def join(transport: str, level: int, *filters: tuple[str, dict[str, object]], **options: object) -> Iterator[MqttJs]:
        path = "" if transport == "tcp" else "/mqtt"
        url = f"{'mqtt' if transport == 'tcp' else transport}://127.0.0.1:{getattr(broker, transport)}{path}"
        connect_options = {"protocolVersion": level, **options}
        plan = {"url": url, "options": connect_options, "subscribe": filters, "ca": str(certificates.ca)}
        command = [need("node", debian="nodejs"), str(NODE / "client.cjs"), json.dumps(plan)]
        environment = {"NODE_PATH": str(modules)}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
            client = MqttJs(process)
            try:
                client.wait("connack")
                if filters:
                    client.wait("suback", len(filters))
                yield client
            finally:
                process.kill()

    return join


@TRANSPORTS
@BOTH
def test_messages_pass_in_both_directions_with_every_qos(join: Join, name: str, transport: str, level: int) -> None:
    sent = [(payload, qos) for payload in (b"text", bytes(range(256)), b"", b"\x00" * 200_000) for qos in (0, 1, 2)]
    with join(transport, level, (f"{name}/#", {"qos": 2})) as client:
        assert client.events("suback") == [[2]]
        for number, (payload, qos) in enumerate(sent):
            client.publish(f"{name}/{number}", payload, qos=qos)
        found = client.wait("message", len(sent))
    assert sorted((int(one["topic"].partition("/")[2]), b64decode(one["payload"]), one["qos"]) for one in found) == [
        (number, payload, qos) for number, (payload, qos) in enumerate(sent)
    ]


@BOTH
def test_a_retained_message_is_delivered_over_a_websocket(join: Join, name: str, level: int) -> None:
    with join("ws", level) as client:
        client.publish(name, b"kept", qos=1, retain=True)
    with join("ws", level, (name, {"qos": 1})) as client:
        (found,) = client.wait("message")
    assert (found["payload"], found["retain"]) == (b64encode(b"kept").decode(), True)


@TRANSPORTS
@BOTH
def test_the_will_of_a_broken_websocket_is_published(join: Join, name: str, transport: str, level: int) -> None:
    will = {"topic": f"{name}/will", "payload": "lost", "qos": 1, "retain": False}
    with join("ws", level, (f"{name}/will", {"qos": 1})) as watcher:
        with join(transport, level, will=will) as doomed:
            doomed.send_command(destroy=True)
            doomed.wait("closed")
        (found,) = watcher.wait("message")
    assert b64decode(found["payload"]) == b"lost"


def test_properties_of_version_5_pass_over_a_websocket(join: Join, name: str) -> None:
    events = {"contentType": "text/plain", "responseTopic": "answers", "correlationData": b64encode(b"\x01\x02").decode()}
    with join("ws", V5, (name, {"qos": 1, "properties": {"subscriptionIdentifier": 5}})) as client:
        client.publish(name, b"x", qos=1, properties={**events, "userProperties": {"a": "b"}})
        (found,) = client.wait("message")
    assert found["properties"] == {**events, "userProperties": {"a": "b"}, "subscriptionIdentifier": 5}


@BOTH
def test_a_session_is_resumed_over_another_transport(join: Join, name: str, level: int) -> None:
    lasting: dict[str, object] = {"clean": False, "clientId": name}
    if level == V5:
        lasting["properties"] = {"sessionExpiryInterval": 300}
    with join("ws", level, (name, {"qos": 1}), **lasting) as client:
        client.send_command(end=True)
        client.wait("closed")
    with join("tcp", level) as publisher:
        publisher.publish(name, b"waited", qos=1)
    with join("wss", level, **lasting) as back:
        assert back.events("connack")[0]["sessionPresent"]
        assert b64decode(back.wait("message")[0]["payload"]) == b"waited"
