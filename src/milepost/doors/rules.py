"""Rules: what endpoints may do, and how their messages are looked at; the same for all doors."""

from dataclasses import dataclass, field

from milepost.model.priorities import Priority
from milepost.model.topics import filter_matches
from milepost.vetting.access import Access
from milepost.vetting.payloads import Payloads


@dataclass(frozen=True, slots=True)
class Rules:
    """Replaced as a whole when they are read again."""

    access: Access = field(default_factory=Access)
    payloads: Payloads = field(default_factory=Payloads)
    priorities: tuple[tuple[str, Priority], ...] = ()
    """Topic filters and the class of messages on them; the first that fits counts."""
    needs_password: bool = False

    def priority_of(self, topic: str) -> Priority:
        """The class of messages on a topic whose sender does not say."""
        fitting = (priority for pattern, priority in self.priorities if filter_matches(pattern, topic))
        return next(fitting, Priority.CONVENIENCE)
