"""Routes: what is known of a topic for some clients, so that the next message to it needs no second look.

    topic as it stands in the packet ──▶ Route: may they publish to it, who gets it, what is checked, how urgent it is

What must hold:
- a route whose epoch is not the planner's is out of date: the plan is asked for again, the rest stays true;
- clients share routes unless a rule tells them apart.
"""

from dataclasses import dataclass, field
from typing import Final

from milepost.edge.plans import Fan, Plan
from milepost.model.priorities import Priority
from milepost.model.reasons import Refused
from milepost.vetting.payloads import Check

ROUTES_MAX: Final = 100_000
"""So many topics are remembered for clients that share them."""

STALE: Final = -1


class Route:
    """What is known of a topic."""

    __slots__ = ("check", "epoch", "fan", "is_service", "plan", "priority", "refused", "topic", "within_m")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.epoch = STALE
        self.refused: Refused | None = None
        """Why nobody of these clients may publish to it."""
        self.within_m = 0.0
        """How near a place must be that a message names; 0: anywhere."""
        self.check: Check | None = None
        self.priority = Priority.CONVENIENCE
        self.is_service = False
        """Whether what is published there is a request to the edge itself."""
        self.plan: Plan | None = None
        self.fan: Fan | None = None
        """Who gets a message of quality 0, whoever sent it; None if it takes a second look."""


@dataclass(slots=True)
class Routes:
    """The routes of clients that share them: by the topic with its length in front, as a PUBLISH has it."""

    by_topic: dict[bytes, Route] = field(default_factory=dict)

    def put(self, key: bytes, route: Route) -> None:
        """Remember; when too much is remembered, begin anew."""
        if len(self.by_topic) >= ROUTES_MAX:
            self.by_topic.clear()
        self.by_topic[key] = route
