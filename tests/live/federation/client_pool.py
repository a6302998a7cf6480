"""A pool of roaming clients, run by one thread, so that a test can kill and start processes meanwhile."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from ledger import Ledger
from live.federation.roaming_clients import EdgeAddress, LeaveMode, RoamingClient

POLL_S: Final = 0.01
WAIT_S: Final = 90.0


class ClientPool:
    """Runs roaming clients; a test calls its methods from its own thread."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.roaming_clients: dict[str, RoamingClient] = {}
        self.lock = threading.RLock()
        """Held while the ledger is used."""
        self._is_over = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def publisher(self, name: str, edge: EdgeAddress, *, topic: str, qos: int = 1, rate: float = 0.0) -> RoamingClient:
        """Add a client that publishes at a rate."""
        with self.lock:
            self.ledger.open(name, qos)
            return self._add(RoamingClient(name, self.ledger, topic, qos, rate=rate), edge)

    def subscriber(self, name: str, edge: EdgeAddress, *filters: str, of: tuple[str, ...] = ()) -> RoamingClient:
        """Add a client that subscribes; return when it has received a message of each of the given publishers."""
        with self.lock:
            made = self._add(RoamingClient(name, self.ledger, filters=filters), edge)
        self.wait(lambda: made.is_subscribed, f"{name} is subscribed")
        self.wait_subscribed(name, *of)
        return made

    def wait_subscribed(self, subscriber: str, *publishers: str) -> None:
        """Publish until a subscriber receives messages: its subscription is known then. From then on all messages count."""
        for publisher in publishers:
            until = time.monotonic() + WAIT_S
            while not self.has_received(subscriber, publisher):
                assert time.monotonic() < until, f"{subscriber} never receives from {publisher}"
                self.burst(1, publisher)
                time.sleep(5 * POLL_S)
            with self.lock:
                self.ledger.subscribe(subscriber, publisher)

    def has_received(self, subscriber: str, publisher: str) -> bool:
        """Return whether a subscriber has received any message of a publisher."""
        with self.lock:
            return bool(self.ledger.seen(subscriber, publisher))

    def note(self, subscriber: str, payload: bytes, *, connection: int) -> None:
        """Note a message received by a client outside the pool."""
        publisher, number = payload.split(b" ")[:2]
        with self.lock:
            self.ledger.receive(subscriber, publisher.decode(), int(number), connection=connection, is_duplicate=False)

    def move(self, name: str, edge: EdgeAddress, how: LeaveMode = LeaveMode.BY_CLOSING) -> None:
        """Move a client to another edge."""
        with self.lock:
            self.roaming_clients[name].go(edge, how)

    def publish_and_move(self, name: str, edge: EdgeAddress, count: int) -> None:
        """Publish messages and move before any acknowledgement is read: the edge has them, and the client does not know."""
        with self.lock:
            one = self.roaming_clients[name]
            one.burst(count)
            one.flush()
            one.go(edge, LeaveMode.SILENTLY)

    def go_offline(self, name: str, how: LeaveMode = LeaveMode.BY_CLOSING) -> None:
        """Disconnect a client and keep it offline."""
        with self.lock:
            self.roaming_clients[name].go_offline(how)

    def arrive(self, name: str, edge: EdgeAddress, how: LeaveMode = LeaveMode.BY_CLOSING, *, within_s: float = WAIT_S) -> bool:
        """Move a client and wait until it is admitted; return whether its session was present."""
        one = self.roaming_clients[name]
        before = len(one.session_present)
        self.move(name, edge, how)
        self.wait(lambda: len(one.session_present) > before, f"{name} is admitted", within_s=within_s)
        return one.session_present[-1]

    def burst(self, count: int, *names: str) -> None:
        """Let clients publish messages as fast as possible."""
        with self.lock:
            for name in names:
                self.roaming_clients[name].burst(count)

    def wait(self, condition: Callable[[], bool], what: str, *, within_s: float = WAIT_S) -> None:
        """Wait for a condition of the pool or the ledger."""
        until = time.monotonic() + within_s
        while True:
            with self.lock:
                if self._fault is not None:
                    raise AssertionError(f"the pool ended: {self._fault}") from self._fault
                if condition():
                    return
                assert time.monotonic() < until, f"timeout: {what}\n" + "\n".join(self.ledger.faults()[:30])
            time.sleep(POLL_S)

    def wait_seen(self, subscriber: str, publisher: str, more: int) -> None:
        """Wait until a subscriber has received more messages of a publisher."""
        with self.lock:
            before = len(self.ledger.seen(subscriber, publisher))
        self.wait(
            lambda: len(self.ledger.seen(subscriber, publisher)) >= before + more,
            f"{subscriber} receives {more} more of {publisher}",
        )

    def finish(self, *, within_s: float = 40.0) -> None:
        """Stop publishing; wait until all acknowledged messages have arrived, or a timeout."""
        with self.lock:
            for one in self.roaming_clients.values():
                one.stop()
        self.wait(
            lambda: all(one.is_idle for one in self.roaming_clients.values()),
            "all publications are acknowledged",
            within_s=within_s,
        )
        until = time.monotonic() + within_s
        while time.monotonic() < until and not self._is_complete():
            time.sleep(POLL_S)
        time.sleep(0.3)  # duplicates would arrive now

    def check(self) -> None:
        """Check that nothing was lost, duplicated, reordered or invented."""
        with self.lock:
            assert self._fault is None, self._fault
            faults = self.ledger.faults()
            assert not faults, "\n".join(faults[:30])

    def close(self) -> None:
        """End all connections."""
        self._is_over = True
        self._thread.join()
        for one in self.roaming_clients.values():
            one.end()

    def _is_complete(self) -> bool:
        with self.lock:
            return self.ledger.is_complete()

    def _add(self, client: RoamingClient, edge: EdgeAddress) -> RoamingClient:
        client.port = edge.tcp
        self.roaming_clients[client.name] = client
        return client

    def _run(self) -> None:
        try:
            while not self._is_over:
                with self.lock:
                    sockets = {one.sock: one for one in self.roaming_clients.values() if one.sock is not None}
                ready = _readable(sockets)
                with self.lock:
                    now = time.monotonic()
                    for found in ready:
                        if sockets[found].sock is found:
                            sockets[found].read(now)
                    for one in self.roaming_clients.values():
                        one.step(now)
        except BaseException as fault:  # noqa: BLE001  # raised again in the test's thread
            self._fault = fault


def _readable(sockets: "dict[socket.socket, RoamingClient]") -> list[socket.socket]:
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            with contextlib.suppress(ValueError, OSError):  # closed meanwhile
                selector.register(one, selectors.EVENT_READ)
        if not selector.get_map():
            time.sleep(POLL_S)
            return []
        return [key.fileobj for key, _ in selector.select(POLL_S)]  # type: ignore[misc]


@contextlib.contextmanager
def client_pool() -> Iterator[ClientPool]:
    """A pool whose connections are closed in the end."""
    made = ClientPool()
    try:
        yield made
    finally:
        made.close()
