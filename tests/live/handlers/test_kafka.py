"""Handlers on a real Kafka: the same guarantees as on the embedded log."""

from live.handlers import test_handlers, test_kill
from live.handlers.fake_edge import FakeEdge


def test_differences_are_returned(kafka_edge: FakeEdge) -> None:
    test_handlers.test_the_difference_between_the_last_two_commits_of_a_vehicle_is_returned(kafka_edge)


def test_requests_wait_while_no_process_runs(kafka_edge: FakeEdge) -> None:
    test_handlers.test_requests_wait_while_no_process_runs_and_the_store_persists(kafka_edge)


def test_two_processes_share_the_work_and_one_takes_over(kafka_edge: FakeEdge) -> None:
    test_kill.test_two_processes_share_the_work_and_one_takes_over_all_of_it(kafka_edge)


def test_a_forgotten_handler_starts_afresh(kafka_edge: FakeEdge) -> None:
    test_handlers.test_a_forgotten_handler_has_no_subscriptions_and_starts_afresh(kafka_edge)
