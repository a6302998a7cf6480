"""The text format of metrics, parsed by the Prometheus client library."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from house.rules.tree import ROOT
from milepost.runtime.metrics import Family, MetricType, Sample, counter, exposition, gauge, histogram, labelled

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read(*families: Family) -> dict[str, tuple[str, str, list[tuple[str, dict[str, str], float]]]]:
    found = text_string_to_metric_families(exposition(families).decode())
    return {one.name: (one.type, one.documentation, [(s.name, s.labels, s.value) for s in one.samples]) for one in found}


def test_help_type_and_samples_are_written() -> None:
    text = exposition([counter("messages_total", "Messages.", 3), gauge("sessions", "Sessions.", 2.5)])
    assert text == (
        b"# HELP messages_total Messages.\n# TYPE messages_total counter\nmessages_total 3\n"
        b"# HELP sessions Sessions.\n# TYPE sessions gauge\nsessions 2.5\n"
    )


def test_the_metrics_page_is_parsed_by_prometheus() -> None:
    refused = labelled("refused_total", MetricType.COUNTER, "By reason.", "reason", [("MALFORMED", 3), ("TAG_EMPTY", 0)])
    assert read(refused)["refused"] == (
        "counter", "By reason.",
        [("refused_total", {"reason": "MALFORMED"}, 3.0), ("refused_total", {"reason": "TAG_EMPTY"}, 0.0)],
    )  # fmt: skip


def test_a_histogram_counts_up_to_each_bound() -> None:
    kind, _, samples = read(histogram("delay_seconds", "Delay.", [0.1, 1.0], [3, 2, 1], 4.5))["delay_seconds"]
    assert kind == "histogram"
    assert samples == [
        ("delay_seconds_bucket", {"le": "0.1"}, 3.0),
        ("delay_seconds_bucket", {"le": "1.0"}, 5.0),
        ("delay_seconds_bucket", {"le": "+Inf"}, 6.0),
        ("delay_seconds_sum", {}, 4.5),
        ("delay_seconds_count", {}, 6.0),
    ]


@given(st.lists(st.tuples(st.sampled_from(["a", "b_c", "d1"]), TEXTS), unique_by=lambda label: label[0]), st.floats())
def test_any_label_and_number_round_trips(labels: list[tuple[str, str]], value: float) -> None:
    [(_, found_labels, found)] = read(Family("x", MetricType.GAUGE, "", [Sample(value, tuple(labels))]))["x"][2]
    assert found_labels == dict(labels)
    assert found == value or (math.isnan(found) and math.isnan(value))


@given(TEXTS)
def test_any_help_text_stays_on_one_line(what: str) -> None:
    # The parser splits lines and strips spaces where Python does, the format does not: only what both agree on is compared.
    text = exposition([gauge("x", what, 1)]).decode()
    assert text.split("\n")[1:] == ["# TYPE x gauge", "x 1", ""]
    assert text.split("\n")[0] == "# HELP x " + what.replace("\\", "\\\\").replace("\n", "\\n")


def test_lone_surrogates_do_not_break_the_page() -> None:
    assert b'name="\\ud800"' in exposition([labelled("x", MetricType.GAUGE, "", "name", [("\ud800", 1)])])


@pytest.mark.parametrize("name", ["", "1x", "a-b", "a b", "é"])
def test_an_invalid_metric_name_fails_an_assertion(name: str) -> None:
    with pytest.raises(AssertionError):
        gauge(name, "", 1)
    with pytest.raises(AssertionError):
        labelled("x", MetricType.GAUGE, "", name, [("", 1)])


def test_the_name_of_a_counter_must_end_in_total() -> None:
    with pytest.raises(AssertionError):
        counter("messages", "", 1)


def test_no_metric_of_a_process_names_internals() -> None:
    """Operators do not know what an epoch of a claim is, or other words of the implementation."""
    runtime = "".join(path.read_text() for path in sorted((ROOT / "src/milepost/runtime").glob("*.py")))
    federation = "".join(path.read_text() for path in sorted((ROOT / "src/milepost/federation").glob("*.py")))
    metrics = re.findall(r'"(milepost_\w+)",[^"]*"([^"]*)"', runtime)
    events = re.findall(r'counts\["(\w+)"', federation)
    assert (len(metrics) > 40, len(events) > 15) == (True, True)
    texts = [" ".join(metric).replace("_", " ") for metric in metrics] + [event.replace("_", " ") for event in events]
    assert [text for text in texts if re.search(r"\b(epochs?|young|youth|anew|told|wish(es)?|centre)\b", text)] == []
