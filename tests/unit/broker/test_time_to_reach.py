"""Under overload what waits goes in the order in which the endpoint reaches it; what it has passed is given up (M26, M29)."""

from edge_in_memory import Client, EdgeInMemory
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Kind, Properties, Publish
from milepost.wire.times import instant_to_text

START_WEST = "40.0,-111.0,90,20"


def road(length_m: float) -> str:
    """The same road to the east, up to a place so far from its beginning, at 20 m/s."""
    east = -111.0 + length_m / 85_180.0
    return f"UPSTREAM ((-111.001 40.0, {east:.6f} 40.0; 15, {length_m / 20 + 5:.3f} 0, {length_m + 85:.1f} 0))"


def words(**said: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in said.items()))


def warn(edge: EdgeInMemory, context: Client, body: bytes, to: str, **more: str) -> None:
    until = instant_to_text(Instant(edge.now + 600 * SECOND_NS))
    context.publish("alert", body, 1, properties=words(to=f"area:{to}", valid_until=until, priority="safety", **more))


class Overloaded:
    """A car that takes one message at a time, and has taken one already."""

    def __init__(self) -> None:
        self.edge = EdgeInMemory()
        properties = Properties(user=words(report=START_WEST).user, receive_maximum=1)
        self.car = self.edge.connect("car", properties=properties)
        self.context = self.edge.connect("desk")
        self.context.publish("first", b"first", 1, properties=words(to="endpoint:car"))
        (self.last,) = self.car.messages()

    def next(self) -> list[bytes]:
        """What comes when it acknowledges."""
        answers = self.car.acknowledge(Kind.PUBACK, self.last.number)
        found = [packet for packet in answers if isinstance(packet, Publish)]
        self.last = found[-1] if found else self.last
        return [one.payload for one in found]


def test_what_is_reached_first_goes_first_whatever_came_first() -> None:
    one = Overloaded()
    for body, length_m in ((b"far", 3_000), (b"near", 500), (b"middle", 1_500)):
        warn(one.edge, one.context, body, road(length_m))
    assert [one.next() for _ in range(3)] == [[b"near"], [b"middle"], [b"far"]]


def test_a_more_urgent_class_goes_before_what_is_nearer() -> None:
    one = Overloaded()
    warn(one.edge, one.context, b"near", road(500))
    one.context.publish("e", b"emergency", 1, properties=words(to="endpoint:car", priority="emergency"))
    assert [one.next() for _ in range(2)] == [[b"emergency"], [b"near"]]


def test_what_was_passed_before_it_could_be_told_is_given_up_and_told_when_the_endpoint_is_back() -> None:
    one = Overloaded()
    warn(one.edge, one.context, b"near", road(500))
    warn(one.edge, one.context, b"far", road(3_000))
    one.edge.pass_time(40)
    one.car.publish("pos", b"", properties=words(report=f"40.0,{-111.0 + 800 / 85_180},90,20"))
    assert one.next() == [b"far"]
    assert one.edge.broker.counts.dropped == {Reason.PASSED: 1}
    assert one.next() == []
    one.edge.pass_time(40)
    one.car.publish("pos", b"", properties=words(report=START_WEST))
    assert [message.payload for message in one.car.messages()] == [b"near"]


def test_what_something_newer_of_the_same_incident_replaces_is_given_up_after_the_next_report() -> None:
    one = Overloaded()
    warn(one.edge, one.context, b"old", road(500), incident="i")
    one.edge.pass_time(5)
    warn(one.edge, one.context, b"new", road(600), incident="i")
    one.car.publish("pos", b"", properties=words(report="40.0,-110.9995,90,20"))
    assert [one.next(), one.next()] == [[b"new"], []]
    assert one.edge.broker.counts.dropped == {Reason.REPLACED: 1}


def test_who_stands_is_not_taken_to_have_passed_and_circles_know_nothing_of_it() -> None:
    one = Overloaded()
    warn(one.edge, one.context, b"round", "circle 40.0,-111.0 100")
    warn(one.edge, one.context, b"road", road(500))
    one.edge.pass_time(10)
    one.car.publish("pos", b"", properties=words(report="40.0,-110.9985,270,0.2"))
    assert sorted(body for _ in range(2) for body in one.next()) == [b"road", b"round"]
    assert one.edge.broker.counts.dropped == {}
