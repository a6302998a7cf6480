"""Silences: which connections have been quiet for longer than they may.

Connections are kept by the second in which they are looked at next; one that was heard meanwhile is put into a later second.
So a packet costs nothing here, and a turn looks only at those that may be due.
"""

from milepost.doors.mqtt.link import MqttLink


class Silences:
    """Connections that must say something in time."""

    def __init__(self) -> None:
        self._by_second: dict[int, set[MqttLink]] = {}
        self._looked_at = 0

    def expect(self, link: MqttLink, patience_s: float) -> None:
        """From now on a connection may be quiet for so long; 0: for ever."""
        self.forget(link)
        link.patience_s = patience_s
        if patience_s:
            self._put(link)

    def forget(self, link: MqttLink) -> None:
        """Expect nothing more of a connection."""
        others = self._by_second.get(link.due_at)
        if others is not None:
            others.discard(link)
            if not others:
                del self._by_second[link.due_at]
        link.due_at = 0

    def overdue(self, now_s: float) -> list[MqttLink]:
        """Connections whose time is over; each is told once."""
        found = []
        this = int(now_s)
        first = self._looked_at or min(self._by_second, default=this)
        for second in range(first, this + 1):
            for link in self._by_second.pop(second, ()):
                if link.heard_at + link.patience_s <= now_s:
                    link.due_at = 0
                    found.append(link)
                else:
                    self._put(link)
        self._looked_at = this + 1
        return found

    def _put(self, link: MqttLink) -> None:
        second = max(int(link.heard_at + link.patience_s) + 1, self._looked_at)
        link.due_at = second
        self._by_second.setdefault(second, set()).add(link)
