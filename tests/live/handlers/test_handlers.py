"""Handlers as processes on the embedded log; the edge is a fake made of raw appends (D10-D12)."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from live.federation.town import wait_until
from live.handlers import odd
from live.handlers.fake_edge import EDGE, EXAMPLES, SITE, FakeEdge
from live.mqtt.brokers import free_port
from milepost.eventlog.log import Entry, TopicSettings
from milepost.handlers.administration import write
from milepost.model.addresses import ToEveryone
from milepost.model.sites import CROSS_HUB, EdgeRef, ForwardedMessage, publish_to
from milepost.wire.mqtt import Properties, forwarded, parse_forwarded
from milepost.wire.records import to_record

ODD = Path(odd.__file__)


def told(answers: list[ForwardedMessage]) -> list[tuple[str, object]]:
    """Topic and content of answers."""
    return [(answer.message.topic, json.loads(answer.message.body)) for answer in answers]


def test_differences_between_the_last_two_commits_of_a_vehicle_come_back(edge: FakeEdge) -> None:
    # M19, M34, D6, D12
    topic = "service/vehicle-info"
    with edge.running(EXAMPLES / "difference.py"):
        edge.ask("difference", topic, {"speed_mps": 20, "fuel": 0.5}, source="truck-7")
        edge.ask("difference", topic, {"speed_mps": 1, "fuel": 0.1}, source="car-1")
        edge.ask("difference", topic, {"speed_mps": 25, "plate": "A 1"}, source="truck-7")
        edge.ask("difference", topic, {"speed_mps": 300}, source="truck-7")
        found = told(edge.wait_answers(4))
        assert edge.wanted() == {f"topic:{topic}"}
    first = {"commit": 1, "added": {"speed_mps": 20, "fuel": 0.5}, "removed": [], "changed": {}}
    second = {"commit": 2, "added": {"plate": "A 1"}, "removed": ["fuel"], "changed": {"speed_mps": {"from": 20, "to": 25}}}
    assert (f"{topic}/accept", first) in found
    assert (f"{topic}/accept", second) in found
    (reason,) = [content for where, content in found if where == f"{topic}/reject"]
    assert isinstance(reason, dict)
    assert "maximum of 100" in reason["reason"]


def test_drivers_find_places_with_room_and_reserve_them(edge: FakeEdge) -> None:
    def ask(verb: str, body: object, source: str = "driver-1") -> None:
        edge.ask("parking", f"service/parking/{verb}", body, source=source)

    here = {"latitude": 40.7608, "longitude": -111.891}
    with edge.running(EXAMPLES / "parking.py"):
        ask("find", here)
        for place, north_deg, free in (("far", 0.01, 5), ("near", 0.001, 1), ("full", 0.0, 0)):
            spot = {"latitude": 40.7608 + north_deg, "longitude": -111.891}
            ask("free", {"place": place, "free": free, **spot}, source=place)
        ask("find", here)
        ask("reserve", {"place": "near"})
        ask("reserve", {"place": "near"}, source="driver-2")
        ask("reserve", {"place": "nowhere"}, source="driver-2")
        ask("find", here, source="driver-2")
        ask("find", here)
        found = told(edge.wait_answers(7))
    near, far = {"place": "near", "free": 1, "distance_m": 111}, {"place": "far", "free": 5, "distance_m": 1112}
    assert found == [
        ("service/parking/find/reject", {"reason": "no place with room near you"}),
        ("service/parking/find/accept", {"places": [near, far]}),
        ("service/parking/reserve/accept", {"place": "near", "valid_s": 900}),
        ("service/parking/reserve/reject", {"reason": "no room left"}),
        ("service/parking/reserve/reject", {"reason": "no such place"}),
        ("service/parking/find/accept", {"places": [far]}),
        ("service/parking/find/accept", {"places": [near, far]}),
    ]


def test_what_is_asked_while_no_process_runs_waits_and_the_store_outlives_them(edge: FakeEdge) -> None:
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "count"})
        edge.wait_answers(1)
    edge.ask("odd", "odd/a", {"do": "count"})
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "silent"})
        edge.ask("odd", "odd/a", {"do": "count"})
        found = told(edge.wait_answers(3))
    assert [content for _, content in found] == [{"count": 1}, {"count": 2}, {"count": 4}]


def test_poison_is_rejected_or_passed_over_and_stops_nothing(edge: FakeEdge) -> None:
    http = f"127.0.0.1:{free_port()}"
    with edge.running(ODD, "--http", http):
        edge.append("odd", "truck-7", b"no record")
        edge.append("odd", "truck-7", b'{"type":"again"}')
        edge.ask("odd", "odd/a", b"\xff\xfe")
        edge.ask("odd", "odd/a", {"do": "x" * 400_000})
        edge.ask("odd", "odd/a", {"do": "count"}, sender=EdgeRef(SITE, "no edge"))
        edge.ask("odd", "/".join(["odd", *"a" * 31]), {"do": "count"})
        edge.ask("odd", "odd/a/accept", {"do": "count"}, source="@odd")
        edge.ask("odd", "odd/a", {"do": "count"}, source="@other")
        edge.ask("odd", "nobody/asked", {"do": "count"})
        edge.ask("odd", "odd/a", {"do": "count"})
        found = told(edge.wait_answers(3))
        figures = build_opener(ProxyHandler({})).open(f"http://{http}/metrics", timeout=10).read().decode()
        ready = build_opener(ProxyHandler({})).open(f"http://{http}/ready", timeout=10).read()
    assert [where for where, _ in found] == ["odd/a/reject", "odd/a/reject", "odd/a/accept"]
    assert found[2][1] == {"count": 4}
    assert ready == b"ready\n"
    for end, count in {"malformed": 2, "rejected": 2, "unanswerable": 2, "ignored": 2, "accepted": 4, "received": 8}.items():
        assert f'milepost_handler_requests_total{{end="{end}"}} {count}\n' in figures


def test_what_fails_becomes_a_dead_letter_and_can_be_tried_again_by_hand(edge: FakeEdge, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    assert edge.command("dead-letters", "list") == "there are no dead letters\n"
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "fail", "unless": str(mended)})
        edge.ask("odd", "odd/a", {"do": "lie"})
        edge.ask("odd", "odd/a", {"do": "hang"})
        edge.ask("odd", "odd/a", {"do": "count"})
        found = told(edge.wait_answers(4))
        assert found[:3] == [("odd/a/reject", {"reason": "the service failed"})] * 3
        assert found[3] == ("odd/a/accept", {"count": 1})

        lines = edge.command("dead-letters", "list").splitlines()
        assert [line.split()[0] for line in lines] == ["id", "odd:0.0", "odd:0.1", "odd:0.2"]
        assert "RuntimeError: as you wish (line " in lines[1]
        assert "224 PAYLOAD_SCHEMA: the answer" in lines[2]
        assert "TookTooLong: it took more than 0.3 s" in lines[3]
        whole = [json.loads(line) for line in edge.command("dead-letters", "list", "--json").splitlines()]
        assert [(one["id"], one["tries"], one["said"]["message"]["topic"]) for one in whole] == [
            ("odd:0.0", 3, "odd/a"),
            ("odd:0.1", 1, "odd/a"),
            ("odd:0.2", 3, "odd/a"),
        ]

        write(edge.log, [Entry("handler.dead-letters-odd", "0.9", b"no record")])
        mended.touch()
        assert edge.command("dead-letters", "retry", "odd:0.0") == "odd:0.0 is tried again\n"
        assert told(edge.wait_answers(5))[4] == ("odd/a/accept", {"count": 2})
        assert len(edge.command("dead-letters", "list").splitlines()) == 3

        edge.command("dead-letters", "retry", "--all")
        edge.wait_answers(7)
        again = edge.command("dead-letters", "list")
        assert [line.split()[0] for line in again.splitlines()] == ["id", "odd:0.3", "odd:0.4"]
    for words in (("dead-letters", "retry"), ("dead-letters", "retry", "odd:0.0"), ("dead-letters", "retry", "--all", "odd:0.3")):
        assert edge.try_command(*words).returncode == 2


def test_a_request_of_another_site_is_taken_from_cross_hub_and_answered_there(edge: FakeEdge) -> None:
    request = edge.said("odd/a", b'{"do": "count"}', sender=EdgeRef("south", "edge-9"))

    def cross(key: str = "", sender: EdgeRef = request.sender, **others: object) -> None:
        number = edge.said("odd/a", b"").number
        said = replace(request, sender=sender, number=number, message=replace(request.message, **others))  # type: ignore[arg-type]
        write(edge.log, [Entry(CROSS_HUB, key, to_record(said))])

    def far(count: int) -> list[object]:
        def found() -> list[ForwardedMessage]:
            return [said for said in edge.answers(CROSS_HUB) if said.sender == EdgeRef(SITE, "@odd.far")]

        wait_until(lambda: len(found()) >= count, f"{count} answers")
        assert {said.message.topic for said in found()} == {"odd/a/accept"}
        return [json.loads(said.message.body) for said in found()]

    cross()  # before anybody had asked for it
    with edge.running(ODD) as process:
        process.wait_said("partition served")
        cross(topic="even/a")
        cross(sender=EDGE)
        cross(key="south/edge-9")
        cross(address=ToEveryone())
        write(edge.log, [Entry(CROSS_HUB, "", b"no record")])
        cross()
        assert far(1) == [{"count": 1}]
    cross()
    with edge.running(ODD):
        assert far(2) == [{"count": 1}, {"count": 2}]
        edge.ask("odd", "odd/a", {"do": "count"})
        (near,) = edge.wait_answers(1)
    assert (near.sender, json.loads(near.message.body)) == (EdgeRef(SITE, "@odd"), {"count": 3})


def test_what_another_site_asks_after_a_new_handler_was_killed_waits_for_it(edge: FakeEdge) -> None:
    process = edge.start(ODD)
    process.wait_said("partition served")
    process.kill()
    said = edge.said("odd/a", b'{"do": "count"}', sender=EdgeRef("south", "edge-9"))
    write(edge.log, [Entry(CROSS_HUB, "", to_record(said))])
    with edge.running(ODD):
        wait_until(lambda: any(one.message.topic == "odd/a/accept" for one in edge.answers(CROSS_HUB)), "the answer")


def test_what_an_edge_appends_again_is_dealt_with_once(edge: FakeEdge) -> None:
    requests = [to_record(edge.said("odd/a", b'{"do": "count"}')) for _ in range(3)]
    with edge.running(ODD):
        for request in requests:
            edge.append("odd", "truck-7", request)
        edge.wait_answers(3)
    with edge.running(ODD):
        for request in requests:
            edge.append("odd", "truck-7", request)
        edge.ask("odd", "odd/a", {"do": "count"})
        found = told(edge.wait_answers(4))
    assert [content for _, content in found] == [{"count": count} for count in (1, 2, 3, 4)]


def test_an_answer_comes_where_mqtt_5_asks_for_it(edge: FakeEdge) -> None:
    asked = forwarded(Properties(response_topic="reply/truck-7", correlation_data=b"\x07"))
    with edge.running(ODD):
        edge.ask("odd", "raw", b"\xff\x00", extras=asked)
        (answer,) = edge.wait_answers(1)
    properties = parse_forwarded(answer.extras or b"")
    assert (answer.message.topic, answer.message.body) == ("reply/truck-7", b"\xff\x00")
    assert (properties.correlation_data, properties.user[0]) == (b"\x07", ("status", "accept"))


def test_a_process_with_too_many_calls_that_hang_ends_and_says_so(edge: FakeEdge) -> None:
    for _ in range(4):
        edge.ask("odd", "odd/a", {"do": "hang"})
    process = edge.start(ODD)
    assert process.wait() == 1
    assert "8 calls took too long and hang" in process.said()
    assert len(edge.answers()) == 3
    with edge.running(ODD):
        edge.wait_answers(4)


def test_a_handler_that_is_forgotten_wants_nothing_and_begins_anew(edge: FakeEdge) -> None:
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "count"})
        edge.ask("odd", "odd/a", {"do": "lie"})
        edge.wait_answers(2)
        assert edge.wanted() == {"topic:odd/#", "topic:raw"}
    assert edge.wanted() == {"topic:odd/#", "topic:raw"}
    edge.ask("odd", "odd/a", {"do": "count"})
    assert edge.command("forget", "odd") == "odd is forgotten: 2 topic filters, 1 values of its store, 1 dead letters\n"
    assert edge.wanted() == set()
    assert edge.command("dead-letters", "list") == "there are no dead letters\n"
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "count"})
        assert told(edge.wait_answers(3))[2] == ("odd/a/accept", {"count": 1})


def test_what_a_handler_wants_no_longer_is_taken_back(edge: FakeEdge, tmp_path: Path) -> None:
    with edge.running(ODD):
        pass
    smaller = tmp_path / "smaller.py"
    smaller.write_text(ODD.read_text().partition('@app.on("raw"')[0])
    with edge.running(smaller):
        assert edge.wanted() == {"topic:odd/#"}


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
def test_a_file_that_is_no_handler_is_refused_with_the_reason(edge: FakeEdge, tmp_path: Path, text: str, fault: str) -> None:
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


def test_another_number_of_parts_is_refused_until_the_handler_is_forgotten(edge: FakeEdge, tmp_path: Path) -> None:
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "count"})
        edge.wait_answers(1)
    more = tmp_path / "more.py"
    more.write_text(ODD.read_text().replace('Handler("odd", ', 'Handler("odd", partitions=2, '))
    process = edge.start(more)
    assert process.wait() == 1
    assert "partitions=1 before" in process.said()
    edge.command("forget", "odd")
    with edge.running(more):
        edge.ask("odd", "odd/a", {"do": "count"})
        edge.wait_answers(2)


def test_requests_that_the_log_has_dropped_are_told_and_the_rest_is_dealt_with(edge: FakeEdge) -> None:
    with edge.running(ODD):
        edge.ask("odd", "odd/a", {"do": "count"})
        edge.wait_answers(1)
        wait_until(lambda: edge.position("odd") == 1, "the position")
    edge.log.make(publish_to("odd"), TopicSettings(retention_bytes=2_000))
    requests = [Entry(publish_to("odd"), "t", to_record(edge.said("odd/a", b'{"do": "silent"}'))) for _ in range(2_000)]
    write(edge.log, requests)
    wait_until(lambda: edge.log.ends(publish_to("odd"))[0] > 10, "retention")
    with edge.running(ODD) as process:
        edge.ask("odd", "odd/a", {"do": "count"})
        edge.wait_answers(2)
        assert "requests are lost" in process.said()
