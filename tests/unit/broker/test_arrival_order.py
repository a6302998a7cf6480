"""Under overload, messages are sent in the order in which the endpoint reaches their places (M26, M29)."""

from edge_in_memory import Client, EdgeInMemory
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import PacketType, Properties, Publish
from milepost.wire.times import instant_to_text

START_WEST = "40.0,-111.0,90,20"


def road(length_m: float) -> str:
    """Return a road to the east with its target *length_m* from the start, at 20 m/s."""
    east = -111.0 + length_m / 85_180.0
    return f"UPSTREAM ((-111.001 40.0, {east:.6f} 40.0; 15, {length_m / 20 + 5:.3f} 0, {length_m + 85:.1f} 0))"


def user_properties(**values: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in values.items()))


def warn(edge: EdgeInMemory, sender: Client, body: bytes, to: str, **more: str) -> None:
    until = instant_to_text(Instant(edge.now + 600 * SECOND_NS))
    sender.publish("alert", body, 1, properties=user_properties(to=f"area:{to}", valid_until=until, priority="safety", **more))


class Overloaded:
    """A car with a receive maximum of one, which has a message in flight."""

    def __init__(self) -> None:
        self.edge = EdgeInMemory()
        properties = Properties(user=user_properties(report=START_WEST).user, receive_maximum=1)
        self.car = self.edge.connect("car", properties=properties)
        self.sender = self.edge.connect("desk")
        self.sender.publish("first", b"first", 1, properties=user_properties(to="endpoint:car"))
        (self.last,) = self.car.messages()

    def acknowledge(self) -> list[bytes]:
        """Acknowledge the last message, and return the bodies that follow."""
        answers = self.car.acknowledge(PacketType.PUBACK, self.last.packet_id)
        found = [packet for packet in answers if isinstance(packet, Publish)]
        self.last = found[-1] if found else self.last
        return [one.payload for one in found]


def test_messages_are_sent_in_the_order_in_which_their_places_are_reached() -> None:
    one = Overloaded()
    for body, length_m in ((b"far", 3_000), (b"near", 500), (b"middle", 1_500)):
        warn(one.edge, one.sender, body, road(length_m))
    assert [one.acknowledge() for _ in range(3)] == [[b"near"], [b"middle"], [b"far"]]


def test_a_more_urgent_class_is_sent_before_a_nearer_place() -> None:
    one = Overloaded()
    warn(one.edge, one.sender, b"near", road(500))
    one.sender.publish("e", b"emergency", 1, properties=user_properties(to="endpoint:car", priority="emergency"))
    assert [one.acknowledge() for _ in range(2)] == [[b"emergency"], [b"near"]]


def test_an_alert_for_a_passed_place_is_dropped_and_delivered_when_the_endpoint_is_back() -> None:
    one = Overloaded()
    warn(one.edge, one.sender, b"near", road(500))
    warn(one.edge, one.sender, b"far", road(3_000))
    one.edge.pass_time(40)
    one.car.publish("pos", b"", properties=user_properties(report=f"40.0,{-111.0 + 800 / 85_180},90,20"))
    assert one.acknowledge() == [b"far"]
    assert one.edge.broker.counts.dropped == {Reason.PLACE_PASSED: 1}
    assert one.acknowledge() == []
    one.edge.pass_time(40)
    one.car.publish("pos", b"", properties=user_properties(report=START_WEST))
    assert [message.payload for message in one.car.messages()] == [b"near"]


def test_a_queued_message_replaced_by_a_newer_one_is_dropped_after_the_next_report() -> None:
    one = Overloaded()
    warn(one.edge, one.sender, b"old", road(500), incident="i")
    one.edge.pass_time(5)
    warn(one.edge, one.sender, b"new", road(600), incident="i")
    one.car.publish("pos", b"", properties=user_properties(report="40.0,-110.9995,90,20"))
    assert [one.acknowledge(), one.acknowledge()] == [[b"new"], []]
    assert one.edge.broker.counts.dropped == {Reason.REPLACED: 1}


def test_a_stationary_endpoint_has_not_passed_and_circles_have_no_arrival() -> None:
    one = Overloaded()
    warn(one.edge, one.sender, b"round", "circle 40.0,-111.0 100")
    warn(one.edge, one.sender, b"road", road(500))
    one.edge.pass_time(10)
    one.car.publish("pos", b"", properties=user_properties(report="40.0,-110.9985,270,0.2"))
    assert sorted(body for _ in range(2) for body in one.acknowledge()) == [b"road", b"round"]
    assert one.edge.broker.counts.dropped == {}
