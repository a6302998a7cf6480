"""The tiers of tests: `make test` runs the quick ones; `make test-long` runs the others, which get the marker `long`.

All tests outside `tests/live`, `tests/simulation`, `tests/fuzz` and `tests/docs` are quick. Of these four, `QUICK` names the
quick tests: at least one of every kind, ten minutes in all on two cores. Plain `pytest` runs both tiers.
"""

from fnmatch import fnmatchcase
from typing import Final

import pytest

from effort import PROFILE

TIERED_FOLDERS: Final = ("tests/live/", "tests/simulation/", "tests/fuzz/", "tests/docs/")
"""Below these folders a test is long unless `QUICK` names it."""

QUICK: Final = (
    "tests/docs/test_every_block.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_headline_results.py",
    "tests/docs/test_reference.py",
    "tests/docs/test_vehicles.py",
    "tests/live/attacks/test_backdating.py",
    "tests/live/attacks/test_cancel.py",
    "tests/live/attacks/test_certificate_users.py",
    "tests/live/attacks/test_delivery_rights.py",
    "tests/live/attacks/test_first_position.py::test_a_first_position_*",
    "tests/live/attacks/test_handler_answers.py",
    "tests/live/attacks/test_log_records.py::test_forged_records_*[embedded-*",
    "tests/live/attacks/test_open_listener.py",
    "tests/live/attacks/test_reload.py",
    "tests/live/attacks/test_revocation.py",
    "tests/live/attacks/test_session_owners.py",
    "tests/live/attacks/test_shared.py",
    "tests/live/attacks/test_signatures.py",
    "tests/live/attacks/test_sources.py",
    "tests/live/attacks/test_takeover.py",
    "tests/live/attacks/test_verbs.py",
    "tests/live/attacks/test_wildcards.py",
    "tests/live/attacks/test_wills.py",
    "tests/live/client/test_messages.py",
    "tests/live/dashboard/test_access.py",
    "tests/live/dashboard/test_map.py::test_vehicles_edges_and_roads_are_on_the_map_and_move",
    "tests/live/dashboard/test_map.py::test_an_alert_*",
    "tests/live/demo/test_demo.py::test_a_headless_demo_*",
    "tests/live/eventlog/test_embedded_kill.py::test_appends_confirmed_before_a_kill_*",
    "tests/live/eventlog/test_embedded_syncs.py",
    "tests/live/eventlog/test_kafka.py",
    "tests/live/federation/test_areas.py",
    "tests/live/federation/test_flows.py",
    "tests/live/federation/test_roaming.py::test_an_endpoint_moving_quickly_between_edges_*",
    "tests/live/handlers/test_edges.py",
    "tests/live/handlers/test_handlers.py::test_the_difference_*",
    "tests/live/handlers/test_handlers.py::test_invalid_requests_*",
    "tests/live/mqtt/test_aiomqtt.py",
    "tests/live/mqtt/test_connect.py",
    "tests/live/mqtt/test_paho.py",
    "tests/live/mqtt/test_publish.py",
    "tests/live/mqtt/test_subscriptions.py",
    "tests/live/mqtt/test_websocket.py",
    "tests/live/papers/test_papers.py::test_an_interrupted_evaluation_*",
    "tests/live/pipelines/test_grid.py",
    "tests/live/pipelines/test_hazards.py",
    "tests/live/runtime/test_command_line.py",
    "tests/live/runtime/test_users_file.py",
    "tests/live/storage/test_kill.py",
    "tests/live/storage/test_syncs.py",
    "tests/live/udp/test_basics.py",
    "tests/live/udp/test_moving.py",
    "tests/live/udp/test_revocation.py",
    "tests/simulation/test_alerts.py::*[[][0-4]]",
    "tests/simulation/test_roaming.py::*[[][0-4]]",
    "tests/simulation/test_udp.py::*[[][0-9]]",
)


SOAK: Final = ("tests/live/pipelines/test_kills.py::test_output_after_kills_*",)
"""Tests that take too long for `make test-long`: only `make soak` runs them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests, and leave out those of `make soak` in every other run."""
    for_soak = [] if PROFILE == "soak" else [item for item in items if any(is_named_by(item.nodeid, one) for one in SOAK)]
    if for_soak:
        config.hook.pytest_deselected(items=for_soak)
        items[:] = [item for item in items if item not in for_soak]
    for item in items:
        if not is_quick(item.nodeid):
            item.add_marker(pytest.mark.long)


def is_quick(node: str) -> bool:
    """Return whether `make test` runs a test."""
    return not node.startswith(TIERED_FOLDERS) or any(is_named_by(node, pattern) for pattern in QUICK)


def is_named_by(node: str, pattern: str) -> bool:
    """Return whether an entry of the table names a test: by file, by function, or by a pattern."""
    is_part = node.startswith((f"{pattern}::", f"{pattern}["))
    return node == pattern or is_part or fnmatchcase(node, pattern)
