"""The tracer of other tests finds called functions, in threads too, and not those that are only imported."""

import threading

from milepost.model import Circle, Instant, Place
from milepost.wire.times import instant_from_text
from tracing import traced_files, without_model


def test_files_of_called_functions_are_found_also_in_threads() -> None:
    def run() -> None:
        thread = threading.Thread(target=lambda: instant_from_text("2026-01-01T00:00:00Z", Instant(0)))
        thread.start()
        thread.join()

    assert "wire/times.py" in traced_files(run)


def test_without_model_only_leaves_out_the_model() -> None:
    files = traced_files(lambda: Circle(Place(48.2, 16.3), 10.0))
    assert "model/areas/circle.py" in files
    assert without_model(files | {"broker/broker.py"}) == {"broker/broker.py"}


def test_no_called_functions_give_no_files() -> None:
    assert traced_files(lambda: None) == set()
