"""Routing: to which sites a message goes, from what they want, whom they have and what they cover (D9, M14, M15)."""

from collections.abc import Iterable
from typing import assert_never

from milepost.hub.counts import Counts, Drop
from milepost.hub.coverage import Coverage
from milepost.hub.interest import Interest, Sites
from milepost.hub.register import Register
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.sites import Said


class Routing:
    """Answers where a message is to be copied."""

    def __init__(self, sites: Iterable[str], interest: Interest, register: Register, coverage: Coverage, counts: Counts) -> None:
        self._sites = frozenset(sites)
        self._interest = interest
        self._register = register
        self._coverage = coverage
        self._counts = counts

    def sites_for(self, said: Said, now: Instant) -> Sites:
        """The sites that a message goes to, its own and those that have it already left out."""
        sites = self._sites if said.is_retained else self._addressed(said.message, now)
        return sites.difference((said.sender.site,), said.direct)

    def maybe_sites_for(self, topic: str) -> Sites | None:
        """The sites that want plain messages on a topic, if that is known already."""
        return self._interest.maybe_wanted_by(topic)

    def _addressed(self, message: Message, now: Instant) -> Sites:
        match message.address:
            case ToContent(within):
                sites = self._interest.wanted_by(message, now)
                return sites if within is None or not sites else sites & self._coverage.sites_touching(within)
            case ToEndpoint(endpoint):
                sites = self._register.sites_of(endpoint)
                if not sites:
                    self._counts.dropped[Drop.ENDPOINT_UNKNOWN] += 1
                return sites
            case ToArea(area):
                return self._coverage.sites_touching(area)
            case ToEveryone() | ToTold():  # those told may be anywhere by now
                return self._sites
            case _:
                assert_never(message.address)
