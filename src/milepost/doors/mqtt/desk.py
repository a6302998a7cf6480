"""The desk: what everything the MQTT door does has in common: settings, rules, the corridor, and answers to clients."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from milepost.doors.limits import DoorLimits
from milepost.doors.log import Log
from milepost.doors.mqtt.link import MqttLink, State
from milepost.doors.mqtt.routes import Route, Routes
from milepost.doors.mqtt.sending import Sender
from milepost.doors.rules import Rules
from milepost.edge.corridor import Corridor
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.topics import check_topic
from milepost.vetting.rates import Bucket
from milepost.wire.asks import SERVICE_PREFIX
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Code,
    Disconnect,
    Kind,
    Packet,
    Ping,
    Pong,
    Properties,
    Version,
    code_of,
    encode,
    fitting,
)

_STEPS: Final = 100
"""A client's rates are looked at each time it has sent this part of a burst."""

ON_ITS_WAY_NS: Final = 10 * SECOND_NS
"""So long a client that was sent on may take to appear elsewhere; its will is not published before."""


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """What the door announces, and its limits."""

    topic_alias_max: int = 10
    packet_bytes_max: int = 2_000_000
    receive_max: int = 20
    keep_alive_s_max: int = 0
    handshake_s_max: int = 10
    limits: DoorLimits = field(default_factory=DoorLimits)


class Arriving(NamedTuple):
    """A connection whose client waits for its session."""

    link: MqttLink
    enter: Callable[[Instant], None]


class Desk:
    """What is shared by all connections."""

    def __init__(self, corridor: Corridor, settings: DoorSettings, rules: Rules, log: Log) -> None:
        self.corridor = corridor
        self.settings = settings
        self.log = log
        self.sender = Sender(corridor, settings.limits.unsent_bytes_max)
        self._messages_step = settings.limits.messages_burst / _STEPS
        self._bytes_step = settings.limits.bytes_burst / _STEPS
        self.closing: list[MqttLink] = []
        """Connections to be closed at the end of the turn."""
        self.arriving: dict[EndpointId, Arriving] = {}
        """Connections whose clients wait for their session to come from another edge."""
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on; whoever is connected stays."""
        self.rules = rules
        self._shared_routes = Routes()

    def new_routes(self) -> Routes:
        """The routes of a client: its own if a rule may tell it from others."""
        return Routes() if self.rules.access.is_personal else self._shared_routes

    def route(self, link: MqttLink, topic: str, now: Instant) -> Route:
        """What is known of a topic for a client, found out if it is not known yet."""
        routes = link.routes
        assert routes is not None, "an open link has routes"
        topic_bytes = topic.encode()
        key = len(topic_bytes).to_bytes(2, "big") + topic_bytes
        route = routes.by_topic.get(key)
        if route is None:
            route = self._new_route(link, topic)
            routes.put(key, route)
        if route.epoch != self.corridor.planner.epoch:
            self._plan(route, now)
        return route

    def _new_route(self, link: MqttLink, topic: str) -> Route:
        assert link.who is not None, "an open link is somebody's"
        check_topic(topic)
        levels_max = self.corridor.limits.topic_levels_max
        if topic.count("/") >= levels_max:
            raise Malformed(Reason.TOPIC_TOO_DEEP, f"{topic.count('/') + 1} levels, {levels_max} are allowed")
        route = Route(topic)
        route.refused = self.rules.access.may_publish(link.who, topic)
        route.within_m = self.rules.access.within_m(link.who, topic)
        route.check = self.rules.payloads.check_for(topic)
        route.priority = self.rules.priority_of(topic)
        route.is_service = topic.startswith(SERVICE_PREFIX)
        return route

    def _plan(self, route: Route, now: Instant) -> None:
        corridor = self.corridor
        route.epoch = corridor.planner.epoch
        route.plan = None if route.refused or route.is_service else corridor.plan_for(route.topic, now)
        plan = route.plan
        is_same_for_all = plan is not None and not plan.turns and not plan.not_own and corridor.is_short(route.topic)
        route.fan = plan.fan if plan is not None and is_same_for_all else None

    def reply(self, link: MqttLink, packet: Packet) -> None:
        """Answer a client; without saying why if that would make the packet larger than the client takes."""
        data = encode(packet, link.version)
        if link.packet_max and len(data) > link.packet_max and not isinstance(packet, Ping | Pong):  # [MQTT-3.4.2-2] and its kin
            data = encode(replace(packet, properties=NO_PROPERTIES), link.version)
        self.sender.put(link, data)

    def because(self, link: MqttLink, refused: Refused, *, is_always: bool = False) -> Properties:
        """The properties that say why; only if the client wants them. [MQTT-3.1.2-29]"""
        return Properties(reason_string=str(refused)[:1000]) if link.is_telling or is_always else NO_PROPERTIES

    def counted(self, refused: Refused) -> Refused:
        """A refusal, counted."""
        self.corridor.counts.refused[refused.reason] += 1
        return refused

    def refuse(self, link: MqttLink, refused: Refused) -> None:
        """Tell a client why it is disconnected, and disconnect it."""
        self.counted(refused)
        self.end(link, code_of(refused.reason), refused)

    def send_on(self, link: MqttLink, address: str) -> None:
        """Disconnect a client and tell it to go on at another edge (MQTT 5, 4.11): its session follows it there."""
        session = link.session
        if session is None or session.link is not link:
            return
        if session.will is not None:
            session.will = replace(session.will, delay_ns=max(session.will.delay_ns, ON_ITS_WAY_NS))
        server = address.partition("://")[2].partition("/")[0]
        self.end(link, Code.USE_ANOTHER_SERVER, Refused(Reason.OUTSIDE_COVERAGE, f"{address} covers the place"), server=server)

    def end(self, link: MqttLink, code: Code, why: Refused | None = None, *, server: str | None = None) -> None:
        """Disconnect a client; one of MQTT 5 is told why, and where to go. [MQTT-3.14.0-1]"""
        if link.state >= State.CLOSING:
            return
        if link.state is State.OPEN and link.version is Version.V5:
            properties = self.because(link, why, is_always=True) if why is not None else NO_PROPERTIES
            code = fitting(code, Kind.DISCONNECT)
            where = Properties(server_reference=server)
            for said in (replace(properties, server_reference=server), where, NO_PROPERTIES):
                link.farewell = encode(Disconnect(code, said), link.version)
                if not link.packet_max or len(link.farewell) <= link.packet_max:  # [MQTT-3.14.2-3]
                    break
        link.state = State.CLOSING
        self.closing.append(link)
        if why is not None:
            client = link.who.client if link.who else ""
            self.log.seldom("disconnected", client=client, address=link.address, reason=why.reason.name, detail=why.detail)

    def may_subscribe_now(self, link: MqttLink, now: Instant) -> bool:
        """Whether a client keeps to the rate of subscriptions."""
        limits = self.settings.limits
        if link.subscribes_bucket is None:
            link.subscribes_bucket = Bucket(limits.subscribes_per_s, limits.subscribes_burst)
        return link.subscribes_bucket.take(1, now)

    def charge(self, link: MqttLink, now: Instant) -> None:
        """Hold what a client sent against its rates, some at a time: looking costs more than most packets do."""
        if link.owed_messages < self._messages_step and link.owed_bytes < self._bytes_step and not link.is_over_rate:
            return
        limits = self.settings.limits
        if link.messages_bucket is None or link.bytes_bucket is None:
            link.messages_bucket = Bucket(limits.messages_per_s, limits.messages_burst)
            link.bytes_bucket = Bucket(limits.bytes_per_s, limits.bytes_burst)
        has_messages = link.messages_bucket.take(link.owed_messages, now)
        has_bytes = link.bytes_bucket.take(link.owed_bytes, now)
        link.owed_messages = 0 if has_messages else link.owed_messages
        link.owed_bytes = 0 if has_bytes else link.owed_bytes
        link.is_over_rate = not (has_messages and has_bytes)
