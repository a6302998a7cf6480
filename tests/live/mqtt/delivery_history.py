"""The deliveries that publishers and a subscriber saw while a broker was killed repeatedly, and their invariants.

- every message whose acceptance reached its publisher (PUBACK, or PUBREC for QoS 2) is delivered;
- no message of QoS 2 is delivered twice;
- messages of one publisher are delivered in the order they were sent, repetitions of QoS 1 aside;
- nothing is delivered that was never sent, and no durable session is lost.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Flow:
    """The messages of one publisher, by number."""

    qos: int
    sent: int = 0
    """Number of sent messages; their numbers are 0 to this, exclusive."""
    accepted: dict[int, int] = field(default_factory=dict)
    """The round in which acceptance of a message reached the publisher."""
    delivered: list[tuple[int, int]] = field(default_factory=list)
    """Number and round, in the order of arrival."""


@dataclass
class History:
    """All flows of a run."""

    flows: dict[str, Flow]
    lost_sessions: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Return the violated invariants as text."""
        found = [f"the session of {one} is gone" for one in self.lost_sessions]
        for name, flow in self.flows.items():
            found += [f"{name}: {fault}" for fault in _flow_faults(flow)]
        return found

    def is_complete(self) -> bool:
        """Whether everything accepted was delivered."""
        return not any(_missing(flow) for flow in self.flows.values())


def _missing(flow: Flow) -> list[int]:
    return sorted(flow.accepted.keys() - {number for number, _ in flow.delivered})


def _flow_faults(flow: Flow) -> list[str]:
    found = [f"{number} was accepted in round {flow.accepted[number]} and never delivered" for number in _missing(flow)]
    numbers = [number for number, _ in flow.delivered]
    times = Counter(numbers)
    if flow.qos == 2:
        found += [f"{number} was delivered {count} times" for number, count in times.items() if count > 1]
    found += [f"{number} was delivered and never sent" for number in times if not 0 <= number < flow.sent]
    first_of = list(dict.fromkeys(numbers))
    return found + [f"{after} came after {before}" for before, after in pairwise(first_of) if after < before]
