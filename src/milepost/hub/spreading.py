"""Spreading: what every site is told about the others: what they want, and which edges they have (D7).

    key at all other sites          value                                       stands while
    @@SITE newline DIGEST           `Wanted`, the edge being `ALL`              somebody at the site wants it
    @@SITE newline @SITE/EDGE       the edge's own `EdgeInfo`                   the edge is described at the site

What must hold:
- what stands at a site is read back: whoever acts for a site next says what is missing, and takes back what is too much;
- nothing is taken back at once. Whoever asks on behalf of an endpoint that moves has then been heard everywhere;
- an entry costs one record for each other site when it comes and one when it goes.
"""

from collections.abc import Iterable
from typing import Final

from milepost.hub.actions import Append
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import SUBSCRIPTION_INFO

TAKE_BACK_NS: Final = 5 * SECOND_NS
DOUBT_NS: Final = 2 * SECOND_NS
"""So long something that reads otherwise than it should may be on its way."""

_OWN: Final = "@@"


def is_own_key(key: str) -> bool:
    """Whether the centre writes under this key."""
    return key.startswith(_OWN)


class Spreading:
    """The entries about each site, and what stands of them at the others."""

    def __init__(self, sites: Iterable[str]) -> None:
        self._sites = tuple(sites)
        self._wanted: dict[str, dict[str, bytes]] = {site: {} for site in self._sites}
        self._stands: dict[tuple[str, str], dict[str, bytes]] = {
            (at, about): {} for at in self._sites for about in self._sites if at != about
        }
        self._owned: set[str] = set()
        self._ending: dict[tuple[str, str], Instant] = {}
        self._doubtful: dict[tuple[str, str, str], Instant] = {}
        self._appends: list[Append] = []

    def put(self, site: str, name: str, value: bytes) -> None:
        """Let all other sites know something about a site."""
        self._ending.pop((site, name), None)
        self._wanted[site][name] = value
        if site in self._owned:
            self._correct_everywhere(site, name)

    def take_away(self, site: str, name: str, now: Instant) -> None:
        """Let it be forgotten after a while."""
        self._ending.setdefault((site, name), Instant(now + TAKE_BACK_NS))

    def read(self, at: str, key: str, value: bytes | None, now: Instant) -> None:
        """An entry of the centre was read from a site's log."""
        about, mark, name = key.removeprefix(_OWN).partition("\n")
        stands = self._stands.get((at, about))
        if not mark or stands is None:
            return
        _set(stands, name, value)
        if about in self._owned and self._wanted[about].get(name) != value:
            self._doubtful.setdefault((at, about, name), Instant(now + DOUBT_NS))

    def own(self, site: str, is_own: bool) -> None:
        """Begin or cease to speak for a site."""
        if not is_own:
            self._owned.discard(site)
            return
        self._owned.add(site)
        for at in self._sites:
            if at != site:
                stands = self._stands[at, site]
                for name in stands.keys() | self._wanted[site].keys():
                    if name in stands or (site, name) not in self._ending:
                        self._correct(at, site, name)

    def tick(self, now: Instant) -> None:
        """Take back what has ended, and put right what was found otherwise."""
        for (site, name), due in list(self._ending.items()):
            if due > now:
                break  # they end in the order they were put there
            del self._ending[site, name]
            self._wanted[site].pop(name, None)
            if site in self._owned:
                self._correct_everywhere(site, name)
        for (at, about, name), due in list(self._doubtful.items()):
            if due > now:
                break
            del self._doubtful[at, about, name]
            if about in self._owned:
                self._correct(at, about, name)

    def take_appends(self) -> list[Append]:
        """What is to be said."""
        appends, self._appends = self._appends, []
        return appends

    def _correct_everywhere(self, about: str, name: str) -> None:
        for at in self._sites:
            if at != about:
                self._correct(at, about, name)

    def _correct(self, at: str, about: str, name: str) -> None:
        wanted, stands = self._wanted[about].get(name), self._stands[at, about]
        if wanted != stands.get(name):
            _set(stands, name, wanted)
            self._appends.append(Append(at, SUBSCRIPTION_INFO, f"{_OWN}{about}\n{name}", wanted))


def _set(stands: dict[str, bytes], name: str, value: bytes | None) -> None:
    if value is None:
        stands.pop(name, None)
    else:
        stands[name] = value
