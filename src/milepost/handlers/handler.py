"""A handler as its author writes it: a name, and functions for topics, each behind its two validators."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from milepost.handlers.validators import NOTHING, Schema, Validator
from milepost.hub.handling import PARTS_MAX
from milepost.model.sites import check_site_name
from milepost.model.topics import check_filter, filter_matches

TIMEOUT_S: Final = 30.0
REASON_CHARACTERS_MAX: Final = 500

Function = TypeVar("Function", bound=Callable[..., object])
"""Takes the request, the whole message and the store; gives the answer, or nothing if there is none."""


class Reject(Exception):
    """Raised by a function: the request is in order, but cannot be granted. The reason is told to the requester."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason[:REASON_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class Route:
    """A function, the topics it is for, and its validators."""

    filter: str
    accepts: Validator
    answers: Validator
    function: Callable[..., object]


class Handler:
    """A third party's service. `parts`: several processes share its work, each part of the sources with a store of its own."""

    def __init__(self, name: str, *, parts: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        check_site_name(name)
        if not 1 <= parts <= PARTS_MAX:
            raise ValueError(f"parts is {parts}, not in 1..{PARTS_MAX}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: a call needs some time")
        self.name = name
        self.parts = parts
        self.timeout_s = timeout_s
        self.routes: list[Route] = []

    def on(self, topics: str, *, accepts: Schema, answers: Schema) -> Callable[[Function], Function]:
        """Have a function called with what is published on the topics of a filter; of several that fit, the first."""
        check_filter(topics)
        if topics.startswith("$"):
            raise ValueError(f"{topics}: what begins with $ belongs to the system")
        if any(route.filter == topics for route in self.routes):
            raise ValueError(f"{topics} has a function already")
        if accepts is NOTHING:
            raise ValueError("accepts=NOTHING would never call the function; ANYTHING takes any bytes")

        def add(function: Function) -> Function:
            inspect.signature(function).bind("request", "message", "store")
            folder = Path(inspect.getfile(function)).parent
            self.routes.append(Route(topics, Validator(accepts, folder), Validator(answers, folder), function))
            return function

        return add

    def maybe_route(self, topic: str) -> Route | None:
        """The first route whose filter a topic passes."""
        return next((route for route in self.routes if filter_matches(route.filter, topic)), None)
