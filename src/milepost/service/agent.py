"""The agent of a vehicle: local programs speak MQTT to it over loopback; it speaks for all of them to one edge (M19).

    programs ──MQTT, loopback──▶ door ▶ corridor ──▶ each other, at once
                                          │ elsewhere
                                          ▼
                                       uplink ──UDP or MQTT──▶ edge

What must hold:
- what local programs publish reaches each other without the edge, and the edge once;
- the edge is asked for exactly what local programs ask for; what it sends under the vehicle's own name is not handed out again;
- a message that is addressed to the vehicle, or to an area it is in, goes to every local program that is connected.
"""

import signal
from time import monotonic
from typing import Final

from milepost.client import Edge
from milepost.client.values import Received
from milepost.doors.keeper import Keeper
from milepost.doors.listening import Listener, MqttEntrance, listen_at
from milepost.doors.mqtt.desk import Desk, DoorSettings
from milepost.doors.mqtt.door import MqttDoor
from milepost.doors.rules import Rules
from milepost.doors.settling import Settling
from milepost.doors.turns import Turns
from milepost.edge.corridor import Corridor
from milepost.edge.limits import Limits
from milepost.edge.parcels import TO_CONTENT, Parcel
from milepost.edge.watching import Ground
from milepost.model.addresses import ToContent, ToEveryone
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.queries import OnTopic
from milepost.service.addresses import host_and_port
from milepost.service.faults import StartFault, cannot_listen
from milepost.service.logs import Log
from milepost.service.uplink import Asking, Uplink
from milepost.storage.memory import MemoryStorage
from milepost.vetting import ReportLimits

TICK_S: Final = 0.1
GOODBYE_S: Final = 2.0
PROGRAMS: Final = Limits(sessions_max=1_024, subscriptions_max=16_384, reports_per_s=100, reports_burst=200)

_ANYWHERE: Final = Ground(believed=ReportLimits(move_mps_max=0.0, heading_off_deg_max=0.0))
"""What a report may say is for the edge to judge."""


class AgentService:
    """The local door and the uplink, joined."""

    def __init__(self, edge: Edge, address: str, log: Log) -> None:
        self._log = log
        self._turns = Turns()
        self._corridor = Corridor(PROGRAMS, EndpointId(edge.name))
        self._corridor.watch.ground = _ANYWHERE
        self._door = MqttDoor(Desk(self._corridor, DoorSettings(), Rules(), log))
        self._settling = Settling(self._corridor, Keeper(self._corridor, MemoryStorage(), log), self._door)
        self._uplink = Uplink(edge, self._turns.call_soon, self._arrive, log)
        self._uplink.stop_all = self._turns.stop
        self._corridor.elsewhere = self._uplink
        self._epoch = -1
        self._stops_at: float | None = None
        host, port = host_and_port(address)
        try:
            self._listener = Listener(self._turns, listen_at(host, port), MqttEntrance(self._turns, self._door).take)
        except OSError as error:
            raise cannot_listen(address, error) from None

    def run(self) -> int:
        """Serve until told to stop; gives the exit status."""
        turns = self._turns
        turns.settle_with(self._settling.settle)
        turns.every(TICK_S, self._tick)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: turns.call_soon(self._begin_stop))
        self._uplink.start()
        self._log.info("agent ready", vehicle=self._uplink.name, mqtt=self._listener.address)
        turns.run()
        self._uplink.stop()
        turns.close()
        if self._uplink.fault is not None:
            raise StartFault(f"the edge is lost: {self._uplink.fault}")
        self._log.info("agent stopped")
        return 0

    def _tick(self, now: Instant) -> None:
        self._settling.tick(now)
        self._log.tell_suppressed()
        if self._epoch != self._corridor.planner.epoch:
            self._epoch = self._corridor.planner.epoch
            self._uplink.want(self._asked())
        if self._stops_at is not None and (not self._door.links or monotonic() > self._stops_at):
            self._turns.stop()

    def _asked(self) -> frozenset[Asking]:
        """What local programs ask for, each thing once."""
        found: set[Asking] = set()
        for session in self._corridor.sessions:
            for asked in session.subscriptions.values():
                one = asked.subscription
                if not (isinstance(one.query, OnTopic) and one.query.filter.startswith("$")):
                    found.add(Asking(one.query, one.area, one.frame, one.qos))
        return frozenset(found)

    def _arrive(self, received: Received, now: Instant) -> None:
        """Hand out what the edge sent."""
        if received.source == self._uplink.name:
            return
        is_asked = isinstance(received.address, ToContent)
        parcel = Parcel(
            received.topic,
            received.body,
            received.seen_at or now,
            source=received.source or EndpointId("unknown"),
            qos=received.qos,
            priority=received.priority,
            valid_until=received.valid_until,
            extras=None,
            tags=received.tags,
            place=received.place,
            address=TO_CONTENT if is_asked else ToEveryone(),
            fields=dict(received.properties),
        )
        self._corridor.publish(parcel, now)

    def _begin_stop(self, now: Instant) -> None:
        if self._stops_at is None:
            self._stops_at = monotonic() + GOODBYE_S
            self._listener.close()
            self._door.shut()
            self._settling.settle(now)
