"""Handlers as processes on the embedded log, with a fake edge (D10-D12)."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from live.federation.deployment import wait_until
from live.handlers import odd
from live.handlers.fake_edge import EDGE, EXAMPLES, SITE, FakeEdge
from live.mqtt.brokers import free_port
from milepost.eventlog.log import Entry, TopicSettings
from milepost.handlers.administration import write
from milepost.model.addresses import ToEveryone
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, handler_topic
from milepost.wire.mqtt import Properties, forwarded, parse_forwarded
from milepost.wire.records import to_record

ODD = Path(odd.__file__)


def contents(answers: list[ForwardedMessage]) -> list[tuple[str, object]]:
    """Return topic and body of each answer."""
    return [(answer.message.topic, json.loads(answer.message.body)) for answer in answers]


def test_the_difference_between_the_last_two_commits_of_a_vehicle_is_returned(edge: FakeEdge) -> None:
    # M19, M34, D6, D12
    topic = "service/vehicle-info"
    with edge.running(EXAMPLES / "difference.py"):
        edge.send_request("difference", topic, {"speed_mps": 20, "fuel": 0.5}, source="truck-7")
        edge.send_request("difference", topic, {"speed_mps": 1, "fuel": 0.1}, source="car-1")
        edge.send_request("difference", topic, {"speed_mps": 25, "plate": "A 1"}, source="truck-7")
        edge.send_request("difference", topic, {"speed_mps": 300}, source="truck-7")
        found = contents(edge.wait_answers(4))
        assert edge.announced_queries() == {f"topic:{topic}"}
    first = {"commit": 1, "added": {"speed_mps": 20, "fuel": 0.5}, "removed": [], "changed": {}}
    second = {"commit": 2, "added": {"plate": "A 1"}, "removed": ["fuel"], "changed": {"speed_mps": {"from": 20, "to": 25}}}
    assert (f"{topic}/accept", first) in found
    assert (f"{topic}/accept", second) in found
    (reason,) = [content for where, content in found if where == f"{topic}/reject"]
    assert isinstance(reason, dict)
    assert "maximum of 100" in reason["reason"]


def test_drivers_find_free_parking_spaces_and_reserve_them(edge: FakeEdge) -> None:
    def send_request(verb: str, body: object, source: str = "driver-1") -> None:
        edge.send_request("parking", f"service/parking/{verb}", body, source=source)

    here = {"latitude": 40.7608, "longitude": -111.891}
    with edge.running(EXAMPLES / "parking.py"):
        send_request("find", here)
        for place, north_deg, free in (("far", 0.01, 5), ("near", 0.001, 1), ("full", 0.0, 0)):
            spot = {"latitude": 40.7608 + north_deg, "longitude": -111.891}
            send_request("free", {"place": place, "free": free, **spot}, source=place)
        send_request("find", here)
        send_request("reserve", {"place": "near"})
        send_request("reserve", {"place": "near"}, source="driver-2")
        send_request("reserve", {"place": "nowhere"}, source="driver-2")
        send_request("find", here, source="driver-2")
        send_request("find", here)
        found = contents(edge.wait_answers(7))
    near, far = {"place": "near", "free": 1, "distance_m": 111}, {"place": "far", "free": 5, "distance_m": 1112}
    assert found == [
        ("service/parking/find/reject", {"reason": "no free space near you"}),
        ("service/parking/find/accept", {"places": [near, far]}),
        ("service/parking/reserve/accept", {"place": "near", "valid_s": 900}),
        ("service/parking/reserve/reject", {"reason": "no free space left"}),
        ("service/parking/reserve/reject", {"reason": "no such place"}),
        ("service/parking/find/accept", {"places": [far]}),
        ("service/parking/find/accept", {"places": [near, far]}),
    ]


def test_requests_wait_while_no_process_runs_and_the_store_persists(edge: FakeEdge) -> None:
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "count"})
        edge.wait_answers(1)
    edge.send_request("odd", "odd/a", {"do": "count"})
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "no answer"})
        edge.send_request("odd", "odd/a", {"do": "count"})
        found = contents(edge.wait_answers(3))
    assert [content for _, content in found] == [{"count": 1}, {"count": 2}, {"count": 4}]


def test_invalid_requests_are_rejected_or_skipped_and_block_nothing(edge: FakeEdge) -> None:
    http = f"127.0.0.1:{free_port()}"
    with edge.running(ODD, "--http", http):
        edge.append("odd", "truck-7", b"no record")
        edge.append("odd", "truck-7", b'{"type":"retry"}')
        edge.send_request("odd", "odd/a", b"\xff\xfe")
        edge.send_request("odd", "odd/a", {"do": "x" * 400_000})
        edge.send_request("odd", "odd/a", {"do": "count"}, sender=EdgeRef(SITE, "no edge"))
        edge.send_request("odd", "/".join(["odd", *"a" * 31]), {"do": "count"})
        edge.send_request("odd", "odd/a/accept", {"do": "count"}, source="@service/odd")
        edge.send_request("odd", "odd/a", {"do": "count"}, source="@service/other")
        edge.send_request("odd", "no/function", {"do": "count"})
        edge.send_request("odd", "odd/a", {"do": "count"})
        found = contents(edge.wait_answers(3))
        metrics = build_opener(ProxyHandler({})).open(f"http://{http}/metrics", timeout=10).read().decode()
        ready = build_opener(ProxyHandler({})).open(f"http://{http}/ready", timeout=10).read()
    assert [where for where, _ in found] == ["odd/a/reject", "odd/a/reject", "odd/a/accept"]
    assert found[2][1] == {"count": 4}
    assert ready == b"ready\n"
    for end, count in {"malformed": 2, "rejected": 2, "unanswerable": 2, "ignored": 2, "accepted": 4, "received": 8}.items():
        assert f'milepost_handler_requests_total{{outcome="{end}"}} {count}\n' in metrics


def test_a_failing_request_becomes_a_dead_letter_and_can_be_retried(edge: FakeEdge, tmp_path: Path) -> None:
    repaired = tmp_path / "repaired"
    assert edge.command("dead-letters", "list") == "there are no dead letters\n"
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "fail", "unless": str(repaired)})
        edge.send_request("odd", "odd/a", {"do": "invalid"})
        edge.send_request("odd", "odd/a", {"do": "hang"})
        edge.send_request("odd", "odd/a", {"do": "count"})
        found = contents(edge.wait_answers(4))
        assert found[:3] == [("odd/a/reject", {"reason": "the service failed"})] * 3
        assert found[3] == ("odd/a/accept", {"count": 1})

        lines = edge.command("dead-letters", "list").splitlines()
        assert [line.split()[0] for line in lines] == ["id", "odd:0.0", "odd:0.1", "odd:0.2"]
        assert "RuntimeError: failure on request (line " in lines[1]
        assert "224 PAYLOAD_SCHEMA: the answer" in lines[2]
        assert "CallTimeout: the call exceeded timeout_s = 0.3" in lines[3]
        whole = [json.loads(line) for line in edge.command("dead-letters", "list", "--json").splitlines()]
        assert [(one["id"], one["attempts"], one["request"]["message"]["topic"]) for one in whole] == [
            ("odd:0.0", 3, "odd/a"),
            ("odd:0.1", 1, "odd/a"),
            ("odd:0.2", 3, "odd/a"),
        ]

        write(edge.log, [Entry("handler.dead-letters-odd", "0.9", b"no record")])
        repaired.touch()
        assert edge.command("dead-letters", "retry", "odd:0.0") == "odd:0.0 will be retried\n"
        assert contents(edge.wait_answers(5))[4] == ("odd/a/accept", {"count": 2})
        assert len(edge.command("dead-letters", "list").splitlines()) == 3

        edge.command("dead-letters", "retry", "--all")
        edge.wait_answers(7)
        listed = edge.command("dead-letters", "list")
        assert [line.split()[0] for line in listed.splitlines()] == ["id", "odd:0.3", "odd:0.4"]
    for arguments in (
        ("dead-letters", "retry"),
        ("dead-letters", "retry", "odd:0.0"),
        ("dead-letters", "retry", "--all", "odd:0.3"),
    ):
        assert edge.try_command(*arguments).returncode == 2


def test_a_request_of_another_site_is_read_from_cross_hub_and_answered_there(edge: FakeEdge) -> None:
    request = edge.forwarded("odd/a", b'{"do": "count"}', sender=EdgeRef("south", "edge-9"))

    def cross(key: str = "", sender: EdgeRef = request.sender, **others: object) -> None:
        number = edge.forwarded("odd/a", b"").number
        crossing = replace(request, sender=sender, number=number, message=replace(request.message, **others))  # type: ignore[arg-type]
        write(edge.log, [Entry(CROSS_HUB, key, to_record(crossing))])

    def remote_answers(count: int) -> list[object]:
        def found() -> list[ForwardedMessage]:
            return [answer for answer in edge.answers(CROSS_HUB) if answer.sender == EdgeRef(SITE, "@odd.remote")]

        wait_until(lambda: len(found()) >= count, f"{count} answers")
        assert {answer.message.topic for answer in found()} == {"odd/a/accept"}
        return [json.loads(answer.message.body) for answer in found()]

    cross()  # before the handler is announced
    with edge.running(ODD) as process:
        process.wait_logged("partition served")
        cross(topic="even/a")
        cross(sender=EDGE)
        cross(key="south/edge-9")
        cross(address=ToEveryone())
        write(edge.log, [Entry(CROSS_HUB, "", b"no record")])
        cross()
        assert remote_answers(1) == [{"count": 1}]
    cross()
    with edge.running(ODD):
        assert remote_answers(2) == [{"count": 1}, {"count": 2}]
        edge.send_request("odd", "odd/a", {"do": "count"})
        (near,) = edge.wait_answers(1)
    assert (near.sender, json.loads(near.message.body)) == (EdgeRef(SITE, "@odd"), {"count": 3})


def test_a_request_of_another_site_waits_for_a_new_handler_that_was_killed(edge: FakeEdge) -> None:
    process = edge.start(ODD)
    process.wait_logged("partition served")
    process.kill()
    request = edge.forwarded("odd/a", b'{"do": "count"}', sender=EdgeRef("south", "edge-9"))
    write(edge.log, [Entry(CROSS_HUB, "", to_record(request))])
    with edge.running(ODD):
        wait_until(lambda: any(one.message.topic == "odd/a/accept" for one in edge.answers(CROSS_HUB)), "the answer")


def test_a_request_appended_twice_is_served_once(edge: FakeEdge) -> None:
    requests = [to_record(edge.forwarded("odd/a", b'{"do": "count"}')) for _ in range(3)]
    with edge.running(ODD):
        for request in requests:
            edge.append("odd", "truck-7", request)
        edge.wait_answers(3)
    with edge.running(ODD):
        for request in requests:
            edge.append("odd", "truck-7", request)
        edge.send_request("odd", "odd/a", {"do": "count"})
        found = contents(edge.wait_answers(4))
    assert [content for _, content in found] == [{"count": count} for count in (1, 2, 3, 4)]


def test_an_answer_goes_to_the_mqtt_5_response_topic(edge: FakeEdge) -> None:
    extras = forwarded(Properties(response_topic="reply/truck-7", correlation_data=b"\x07"))
    with edge.running(ODD):
        edge.send_request("odd", "raw", b"\xff\x00", extras=extras)
        (answer,) = edge.wait_answers(1)
    properties = parse_forwarded(answer.extras or b"")
    assert (answer.message.topic, answer.message.body) == ("reply/truck-7", b"\xff\x00")
    assert (properties.correlation_data, properties.user[0]) == (b"\x07", ("status", "accept"))


def test_a_process_with_too_many_hanging_calls_ends_with_the_reason(edge: FakeEdge) -> None:
    for _ in range(4):
        edge.send_request("odd", "odd/a", {"do": "hang"})
    process = edge.start(ODD)
    assert process.wait() == 1
    assert "8 calls exceeded their timeout and still hang" in process.logged()
    assert len(edge.answers()) == 3
    with edge.running(ODD):
        edge.wait_answers(4)


def test_a_forgotten_handler_has_no_subscriptions_and_starts_afresh(edge: FakeEdge) -> None:
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "count"})
        edge.send_request("odd", "odd/a", {"do": "invalid"})
        edge.wait_answers(2)
        assert edge.announced_queries() == {"topic:odd/#", "topic:raw"}
    assert edge.announced_queries() == {"topic:odd/#", "topic:raw"}
    edge.send_request("odd", "odd/a", {"do": "count"})
    assert edge.command("forget", "odd") == "odd is removed: 2 topic filters, 1 values of its store, 1 dead letters\n"
    assert edge.announced_queries() == set()
    assert edge.command("dead-letters", "list") == "there are no dead letters\n"
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "count"})
        assert contents(edge.wait_answers(3))[2] == ("odd/a/accept", {"count": 1})


def test_obsolete_subscriptions_are_withdrawn(edge: FakeEdge, tmp_path: Path) -> None:
    with edge.running(ODD):
        pass
    smaller = tmp_path / "smaller.py"
    smaller.write_text(ODD.read_text().partition('@app.on("raw"')[0])
    with edge.running(smaller):
        assert edge.announced_queries() == {"topic:odd/#"}


HEAD = 'from milepost.handlers import *\na = Handler("a")\n'
FUNCTION = "\ndef act(request, message, store): ..."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import gone_for_good", "ModuleNotFoundError"),
        ("x = 1", "0 handlers"),
        (HEAD, "no function"),
        (f'{HEAD}@a.on("x", answers=NOTHING){FUNCTION}', "accepts"),
        (f'{HEAD}@a.on("x", accepts={{"type": "odd"}}, answers=NOTHING){FUNCTION}', "schema"),
        (f'{HEAD}@a.on("x", accepts="gone.json", answers=NOTHING){FUNCTION}', "gone.json cannot be read"),
    ],
)
def test_an_invalid_handler_file_is_refused_with_the_reason(edge: FakeEdge, tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    done = edge.try_command("run", str(file))
    assert done.returncode == 2
    assert fault in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_handler_needs_a_site(edge: FakeEdge) -> None:
    edge.config.write_text("")
    done = edge.try_command("run", str(ODD))
    assert (done.returncode, "[site] has no name" in done.stderr) == (2, True)


def test_another_number_of_partitions_is_refused_until_the_handler_is_forgotten(edge: FakeEdge, tmp_path: Path) -> None:
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "count"})
        edge.wait_answers(1)
    more = tmp_path / "more.py"
    more.write_text(ODD.read_text().replace('Handler("odd", ', 'Handler("odd", partitions=2, '))
    process = edge.start(more)
    assert process.wait() == 1
    assert "partitions=1 before" in process.logged()
    edge.command("forget", "odd")
    with edge.running(more):
        edge.send_request("odd", "odd/a", {"do": "count"})
        edge.wait_answers(2)


def test_requests_dropped_by_retention_are_logged_and_the_rest_are_served(edge: FakeEdge) -> None:
    with edge.running(ODD):
        edge.send_request("odd", "odd/a", {"do": "count"})
        edge.wait_answers(1)
        wait_until(lambda: edge.position("odd") == 1, "the position")
    edge.log.make(handler_topic("odd"), TopicSettings(retention_bytes=2_000))
    requests = [
        Entry(handler_topic("odd"), "t", to_record(edge.forwarded("odd/a", b'{"do": "no answer"}'))) for _ in range(2_000)
    ]
    write(edge.log, requests)
    wait_until(lambda: edge.log.ends(handler_topic("odd"))[0] > 10, "retention")
    with edge.running(ODD) as process:
        edge.send_request("odd", "odd/a", {"do": "count"})
        edge.wait_answers(2)
        assert "requests lost" in process.logged()
