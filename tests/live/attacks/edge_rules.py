"""Access rules of an edge under attack as TOML, and the reload of an edge with other ones."""

import re
import signal
import subprocess
import time
from typing import Final

from live.mqtt.brokers import Broker
from parts import need

WAIT_S: Final = 10.0
RELOADED: Final = "reloaded certificates, users and rules"


def rule(topics: str, action: str = "subscribe", *, allow: bool = False, client: str = "", user: str = "") -> str:
    """Return one access rule."""
    lines = ["[[access.rules]]", f"allow = {str(allow).lower()}", f'action = "{action}"', f'topics = "{topics}"']
    lines += [f'client = "{client}"'] if client else []
    lines += [f'user = "{user}"'] if user else []
    return "\n".join([*lines, ""])


MAY_ADDRESS: Final = rule("#", "send", allow=True)
"""A rule that allows all clients to address areas, endpoints and everyone."""


def reload_with(broker: Broker, more: str) -> str:
    """Append settings to those of a running edge and send SIGHUP; return the log line of the reload."""
    path = broker.setup.folder / "edge.toml"
    path.write_text(path.read_text() + more)
    return reload_now(broker)


def reload_now(broker: Broker) -> str:
    """Send SIGHUP; return the log line of the reload."""
    before = broker.log().count(RELOADED)
    broker.running.send_signal(signal.SIGHUP)
    until = time.monotonic() + WAIT_S
    while broker.log().count(RELOADED) == before:
        assert time.monotonic() < until, f"the edge did not reload:\n{broker.log()[-2000:]}"
        time.sleep(0.01)
    return next(line for line in reversed(broker.log().splitlines()) if RELOADED in line)


def revoked(line: str, field: str) -> int:
    """Return a number in the log line of a reload."""
    found = re.search(rf"\b{field}\W+(\d+)", line)
    assert found is not None, line
    return int(found[1])


def remove_user(broker: Broker, user: str) -> None:
    """Remove a user from the users file; SIGHUP makes it effective."""
    path = broker.setup.folder / "users"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith(f"{user}:")))


def change_password(broker: Broker, user: str, password: str) -> None:
    """Change a password in the users file; SIGHUP makes it effective."""
    command = [need("mosquitto_passwd", debian="mosquitto"), "-b", str(broker.setup.folder / "users"), user, password]
    subprocess.run(command, check=True, capture_output=True)
