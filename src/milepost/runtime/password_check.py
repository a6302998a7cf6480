"""Password checks at CONNECT, in a thread pool: a secure hash takes longer than a tick may.

The number of checks at a time and of waiting ones is limited; a client beyond these limits is refused.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.config.settings import Settings
from milepost.listeners.event_loop import EventLoop
from milepost.listeners.mqtt.connect import admit, deny
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.context import MqttContext
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.instants import Instant
from milepost.model.reasons import Reason, Refused
from milepost.wire.mqtt import Connect

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from milepost.runtime.passwords import Users

CHECKS_AT_A_TIME: Final = 2
CHECKS_WAITING_MAX: Final = 1_000


def read_users(settings: Settings) -> "Users | None":
    """Read the users file of the settings, if they name one."""
    if not settings.access.users:
        return None
    from milepost.runtime.passwords import Users  # noqa: PLC0415

    return Users.load(Path(settings.access.users))


class PasswordChecker:
    """Checks passwords against the users file."""

    def __init__(self, event_loop: EventLoop, context: MqttContext) -> None:
        self._event_loop = event_loop
        self._context = context
        self._users: Users | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._pending = 0

    def use(self, users: "Users | None") -> frozenset[str]:
        """Check against these users from now on; return those whose former password is no longer valid."""
        ended = self._users.ended_by(users) if self._users is not None else frozenset[str]()
        self._users = users
        return ended

    def begin(self, listener: MqttListener, connection: MqttConnection, packet: Connect, user: str, password: bytes) -> None:
        """Start the check of a password; the listener gets the result in a later tick."""
        if self._pending >= CHECKS_WAITING_MAX:
            deny(self._context, connection, Refused(Reason.HANDSHAKES_FULL, f"{self._pending} passwords are being checked"))
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # heavy, and most edges have no users

            self._pool = ThreadPoolExecutor(CHECKS_AT_A_TIME, "passwords")
        self._pending += 1
        users = self._users

        def check() -> None:
            is_right = users is not None and users.check(user, password)
            self._event_loop.call_soon(lambda now: finish(now, is_right=is_right))

        def finish(now: Instant, *, is_right: bool) -> None:
            self._pending -= 1
            if users is self._users or not is_right:
                self._finish(listener, connection, packet, now, user=user, is_right=is_right)
            else:  # the users file was read again meanwhile
                self.begin(listener, connection, packet, user, password)

        self._pool.submit(check)

    def _finish(
        self, listener: MqttListener, connection: MqttConnection, packet: Connect, now: Instant, *, user: str, is_right: bool
    ) -> None:
        def decide() -> None:
            if is_right:
                admit(self._context, connection, packet, user, now)
            else:
                deny(self._context, connection, Refused(Reason.BAD_CREDENTIALS))

        listener.decide(connection, decide, now)

    def close(self) -> None:
        """Stop the thread pool; waiting checks are cancelled."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
