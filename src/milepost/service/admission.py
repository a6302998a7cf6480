"""Admission: passwords are checked beside the loop, because a good check takes longer than a turn may.

At most so many are checked at a time and so many wait; a client that comes when all places are taken is refused.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.doors.mqtt.connecting import admit, deny
from milepost.doors.mqtt.desk import Desk
from milepost.doors.mqtt.door import MqttDoor
from milepost.doors.mqtt.link import MqttLink
from milepost.doors.turns import Turns
from milepost.model.instants import Instant
from milepost.model.reasons import Reason, Refused
from milepost.service.settings import Settings
from milepost.wire.mqtt import Connect

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from milepost.service.passwords import Users

CHECKS_AT_A_TIME: Final = 2
CHECKS_WAITING_MAX: Final = 1_000


def read_users(settings: Settings) -> "Users | None":
    """The users file that the settings name, if they do."""
    if not settings.access.users:
        return None
    from milepost.service.passwords import Users  # noqa: PLC0415

    return Users.load(Path(settings.access.users))


class Admission:
    """Checks passwords against the users file."""

    def __init__(self, turns: Turns, desk: Desk) -> None:
        self._turns = turns
        self._desk = desk
        self._users: Users | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._open = 0

    def use(self, users: "Users | None") -> None:
        """Go by these users from now on."""
        self._users = users

    def begin(self, door: MqttDoor, link: MqttLink, packet: Connect, user: str, password: bytes) -> None:
        """Check a password; the door hears of it in a later turn."""
        if self._open >= CHECKS_WAITING_MAX:
            deny(self._desk, link, Refused(Reason.HANDSHAKES_FULL, f"{self._open} passwords are being checked"))
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # heavy, and most edges have no users

            self._pool = ThreadPoolExecutor(CHECKS_AT_A_TIME, "passwords")
        self._open += 1
        users = self._users

        def check() -> None:
            is_right = users is not None and users.check(user, password)
            self._turns.call_soon(lambda now: self._finish(door, link, packet, now, user=user, is_right=is_right))

        self._pool.submit(check)

    def _finish(self, door: MqttDoor, link: MqttLink, packet: Connect, now: Instant, *, user: str, is_right: bool) -> None:
        self._open -= 1

        def decide() -> None:
            if is_right:
                admit(self._desk, link, packet, user, now)
            else:
                deny(self._desk, link, Refused(Reason.BAD_CREDENTIALS))

        door.decide(link, decide, now)

    def close(self) -> None:
        """Check no more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
