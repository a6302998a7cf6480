import pytest

from house.rules.facade import facade_faults
from house.rules.tree import ROOT, Plant


def test_no_caller_reaches_through_the_broker() -> None:
    assert facade_faults(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "self._broker.deliveries.actions.append(1)",
        "broker.counts.refused[reason] += 1",
        "context.broker.sessions.find(name)",
        "broker.sessions[3]",
    ],
)
def test_reaching_through_the_broker_is_found(plant: Plant, line: str) -> None:
    root = plant({"src/milepost/listeners/x.py": line, "src/milepost/broker/x.py": line})
    assert [fault.partition(":")[0] for fault in facade_faults(root)] == ["src/milepost/listeners/x.py"]


def test_calling_the_broker_and_reading_its_settings_is_no_fault(plant: Plant) -> None:
    lines = "broker.publish(session, publication, now)\nlevels = broker.limits.topic_levels_max\ntrouble = broker.trouble\n"
    assert facade_faults(plant({"src/milepost/listeners/x.py": lines})) == []
