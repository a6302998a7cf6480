"""Handlers on a real Kafka: what holds on the embedded log holds here."""

from live.handlers import test_handlers, test_kill
from live.handlers.fake_edge import FakeEdge


def test_differences_come_back(kafka_edge: FakeEdge) -> None:
    test_handlers.test_differences_between_the_last_two_commits_of_a_vehicle_come_back(kafka_edge)


def test_what_is_asked_while_no_process_runs_waits(kafka_edge: FakeEdge) -> None:
    test_handlers.test_what_is_asked_while_no_process_runs_waits_and_the_store_outlives_them(kafka_edge)


def test_two_processes_share_the_work_and_one_takes_over(kafka_edge: FakeEdge) -> None:
    test_kill.test_two_processes_share_the_work_and_one_takes_over_all_of_it(kafka_edge)


def test_a_handler_that_is_forgotten_begins_anew(kafka_edge: FakeEdge) -> None:
    test_handlers.test_a_handler_that_is_forgotten_wants_nothing_and_begins_anew(kafka_edge)
