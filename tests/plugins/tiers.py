"""Which tests `make test` runs, and which it leaves to `make test-long`: those get the marker `long`.

Everything outside `tests/live`, `tests/simulation`, `tests/fuzz` and `tests/docs` is quick. Of these four, `QUICK` names what
`make test` runs: at least one test of every kind, ten minutes in all on two cores. `pytest` by hand runs both.
"""

from fnmatch import fnmatchcase
from typing import Final

import pytest

SIFTED: Final = ("tests/live/", "tests/simulation/", "tests/fuzz/", "tests/docs/")
"""Below these folders a test is long unless `QUICK` names it."""

QUICK: Final = (
    "tests/docs/test_every_block.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_reference.py",
    "tests/docs/test_vehicles.py",
    "tests/live/client/test_messages.py",
    "tests/live/dashboard/test_doors.py",
    "tests/live/dashboard/test_map.py::test_vehicles_edges_and_roads_are_on_the_map_and_move",
    "tests/live/dashboard/test_map.py::test_an_alert_*",
    "tests/live/demo/test_demo.py::test_a_city_that_ends_by_itself_*",
    "tests/live/eventlog/test_embedded_kill.py::test_whatever_was_told_as_done_*",
    "tests/live/eventlog/test_embedded_syncs.py",
    "tests/live/eventlog/test_kafka.py",
    "tests/live/federation/test_areas.py",
    "tests/live/federation/test_flows.py",
    "tests/live/federation/test_roaming.py::test_who_bounces_between_edges_*",
    "tests/live/handlers/test_edges.py",
    "tests/live/handlers/test_handlers.py::test_differences_*",
    "tests/live/handlers/test_handlers.py::test_poison_*",
    "tests/live/mqtt/test_aiomqtt.py",
    "tests/live/mqtt/test_connect.py",
    "tests/live/mqtt/test_paho.py",
    "tests/live/mqtt/test_publish.py",
    "tests/live/mqtt/test_subscriptions.py",
    "tests/live/mqtt/test_websocket.py",
    "tests/live/papers/test_papers.py::test_stopped_in_the_middle_*",
    "tests/live/pipelines/test_grid.py",
    "tests/live/pipelines/test_hazards.py",
    "tests/live/runtime/test_command_line.py",
    "tests/live/runtime/test_users_file.py",
    "tests/live/storage/test_kill.py",
    "tests/live/storage/test_syncs.py",
    "tests/live/udp/test_basics.py",
    "tests/live/udp/test_moving.py",
    "tests/live/udp/test_revocation.py",
    "tests/simulation/test_alarm.py::*[[][0-4]]",
    "tests/simulation/test_roaming.py::*[[][0-4]]",
    "tests/simulation/test_udp.py::*[[][0-9]]",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not is_quick(item.nodeid):
            item.add_marker(pytest.mark.long)


def is_quick(node: str) -> bool:
    """Return whether `make test` runs a test."""
    return not node.startswith(SIFTED) or any(is_named_by(node, pattern) for pattern in QUICK)


def is_named_by(node: str, pattern: str) -> bool:
    """Return whether an entry of the table names a test: its file, its function, or a pattern of both."""
    is_part = node.startswith((f"{pattern}::", f"{pattern}["))
    return node == pattern or is_part or fnmatchcase(node, pattern)
