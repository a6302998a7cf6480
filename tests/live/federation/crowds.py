"""A crowd of travellers, run by one thread, so that a test can kill and start processes meanwhile."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from ledger import Ledger
from live.federation.travellers import Door, Leave, Traveller

LOOK_S: Final = 0.01
WAIT_S: Final = 90.0


class Crowd:
    """Runs travellers; a test calls its methods from its own thread."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.travellers: dict[str, Traveller] = {}
        self.lock = threading.RLock()
        """Held by whoever uses the ledger."""
        self._is_over = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def sender(self, name: str, edge: Door, *, topic: str, qos: int = 1, rate: float = 0.0) -> Traveller:
        """Somebody who sends, if the rate says so at once."""
        with self.lock:
            self.ledger.open(name, qos)
            return self._add(Traveller(name, self.ledger, topic, qos, rate=rate), edge)

    def taker(self, name: str, edge: Door, *filters: str, of: tuple[str, ...] = ()) -> Traveller:
        """Somebody who gets all that senders send from now on: comes back when it hears each of them."""
        with self.lock:
            made = self._add(Traveller(name, self.ledger, filters=filters), edge)
        self.wait(lambda: made.is_listening, f"{name} listens")
        self.tune_in(name, *of)
        return made

    def tune_in(self, taker: str, *senders: str) -> None:
        """Let senders send until a taker hears them: so long its wish is on its way to their edges. From then on all counts."""
        for sender in senders:
            until = time.monotonic() + WAIT_S
            while not self.hears(taker, sender):
                assert time.monotonic() < until, f"{taker} never hears {sender}"
                self.burst(1, sender)
                time.sleep(5 * LOOK_S)
            with self.lock:
                self.ledger.ask(taker, sender)

    def hears(self, taker: str, sender: str) -> bool:
        """Whether anything of a sender has reached a taker."""
        with self.lock:
            return bool(self.ledger.seen(taker, sender))

    def note(self, taker: str, payload: bytes, *, connection: int) -> None:
        """A taker that is not of the crowd got a message."""
        sender, number = payload.split(b" ")[:2]
        with self.lock:
            self.ledger.see(taker, sender.decode(), int(number), connection=connection, is_repetition=False)

    def move(self, name: str, edge: Door, how: Leave = Leave.ABRUPTLY) -> None:
        """Be somewhere else."""
        with self.lock:
            self.travellers[name].go(edge, how)

    def say_and_go(self, name: str, edge: Door, count: int) -> None:
        """Say so many and be somewhere else before any answer is heard: the edge has them, and the sender does not know."""
        with self.lock:
            one = self.travellers[name]
            one.burst(count)
            one.flush()
            one.go(edge, Leave.UNSEEN)

    def stay_away(self, name: str, how: Leave = Leave.ABRUPTLY) -> None:
        """Be nowhere."""
        with self.lock:
            self.travellers[name].stay_away(how)

    def arrive(self, name: str, edge: Door, how: Leave = Leave.ABRUPTLY, *, within_s: float = WAIT_S) -> bool:
        """Be somewhere else and let in; whether the session was there."""
        one = self.travellers[name]
        before = len(one.presents)
        self.move(name, edge, how)
        self.wait(lambda: len(one.presents) > before, f"{name} is let in", within_s=within_s)
        return one.presents[-1]

    def burst(self, count: int, *names: str) -> None:
        """Let some send as fast as it goes."""
        with self.lock:
            for name in names:
                self.travellers[name].burst(count)

    def wait(self, is_so: Callable[[], bool], what: str, *, within_s: float = WAIT_S) -> None:
        """Until something holds of the crowd or the ledger."""
        until = time.monotonic() + within_s
        while True:
            with self.lock:
                if self._fault is not None:
                    raise AssertionError(f"the crowd ended: {self._fault}") from self._fault
                if is_so():
                    return
                assert time.monotonic() < until, f"never: {what}\n" + "\n".join(self.ledger.faults()[:30])
            time.sleep(LOOK_S)

    def wait_seen(self, taker: str, sender: str, more: int) -> None:
        """Until a taker has seen so many more."""
        with self.lock:
            before = len(self.ledger.seen(taker, sender))
        self.wait(lambda: len(self.ledger.seen(taker, sender)) >= before + more, f"{taker} sees {more} more of {sender}")

    def finish(self, *, within_s: float = 40.0) -> None:
        """Send no more; come back when all that was acknowledged has arrived, or will not."""
        with self.lock:
            for one in self.travellers.values():
                one.stop()
        self.wait(lambda: all(one.is_quiet for one in self.travellers.values()), "all is settled", within_s=within_s)
        until = time.monotonic() + within_s
        while time.monotonic() < until and not self._is_complete():
            time.sleep(LOOK_S)
        time.sleep(0.3)  # what comes twice comes now

    def check(self) -> None:
        """Nothing lost, doubled, out of order or made up."""
        with self.lock:
            assert self._fault is None, self._fault
            faults = self.ledger.faults()
            assert not faults, "\n".join(faults[:30])

    def close(self) -> None:
        """End all connections."""
        self._is_over = True
        self._thread.join()
        for one in self.travellers.values():
            one.end()

    def _is_complete(self) -> bool:
        with self.lock:
            return self.ledger.is_complete()

    def _add(self, traveller: Traveller, edge: Door) -> Traveller:
        traveller.port = edge.tcp
        self.travellers[traveller.name] = traveller
        return traveller

    def _run(self) -> None:
        try:
            while not self._is_over:
                with self.lock:
                    sockets = {one.line: one for one in self.travellers.values() if one.line is not None}
                ready = _readable(sockets)
                with self.lock:
                    now = time.monotonic()
                    for found in ready:
                        if sockets[found].line is found:
                            sockets[found].read(now)
                    for one in self.travellers.values():
                        one.step(now)
        except BaseException as fault:  # noqa: BLE001  # told to the test's thread
            self._fault = fault


def _readable(sockets: "dict[socket.socket, Traveller]") -> list[socket.socket]:
    with selectors.DefaultSelector() as looking:
        for one in sockets:
            with contextlib.suppress(ValueError, OSError):  # closed meanwhile
                looking.register(one, selectors.EVENT_READ)
        if not looking.get_map():
            time.sleep(LOOK_S)
            return []
        return [key.fileobj for key, _ in looking.select(LOOK_S)]  # type: ignore[misc]


@contextlib.contextmanager
def crowd() -> Iterator[Crowd]:
    """A crowd whose connections are closed in the end."""
    made = Crowd()
    try:
        yield made
    finally:
        made.close()
