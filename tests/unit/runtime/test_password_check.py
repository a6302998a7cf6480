"""Password checks that are under way when the users file is read again."""

from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest

from edge_in_memory import START, EdgeInMemory
from milepost.model.instants import Instant
from milepost.runtime import password_check
from milepost.runtime.password_check import PasswordChecker
from milepost.runtime.passwords import PasswordHash, Scrypt, Users
from milepost.wire.mqtt import Connect, Version

WAIT_S = 10.0


def users_of(**passwords: bytes) -> Users:
    cheap = Scrypt(2, 1, 1)
    return Users({name: PasswordHash(cheap, b"salt", cheap.hash(one, b"salt", 32)) for name, one in passwords.items()})


class QueuedCalls:
    """An event loop whose calls the test makes."""

    def __init__(self) -> None:
        self.calls: Queue[Callable[[Instant], None]] = Queue()

    def call_soon(self, call: Callable[[Instant], None]) -> None:
        self.calls.put(call)

    def run_next(self) -> None:
        self.calls.get(timeout=WAIT_S)(START)


@pytest.mark.parametrize(("later", "decision"), [({}, "deny"), ({"ada": b"secret"}, "admit"), ({"ada": b"other"}, "deny")])
def test_a_password_is_checked_again_if_the_users_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, later: dict[str, bytes], decision: str
) -> None:
    edge, loop, made = EdgeInMemory(), QueuedCalls(), list[str]()
    for name in ("admit", "deny"):
        monkeypatch.setattr(password_check, name, lambda *_, name=name: made.append(name))
    monkeypatch.setattr(edge.listener, "decide", lambda _connection, decide, _now: decide())
    checker = PasswordChecker(loop_of(loop), edge.context)
    checker.use(users_of(ada=b"secret"))
    client = edge.open_connection()
    checker.begin(edge.listener, client.connection, Connect("a", Version.V5), "ada", b"secret")
    first = loop.calls.get(timeout=WAIT_S)
    checker.use(users_of(**later))
    first(START)
    assert made == []
    loop.run_next()
    assert made == [decision]
    checker.close()


def loop_of(calls: QueuedCalls) -> Any:
    return calls
