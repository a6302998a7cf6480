"""Figures: what an edge tells of itself, over HTTP and below `$SYS/`."""

from collections.abc import Iterator
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING

from milepost import __version__
from milepost.doors.mqtt.door import MqttDoor
from milepost.edge.parcels import Parcel
from milepost.edge.sessions import NOWHERE
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.service.metrics import CONTENT_TYPE, Family, Kind, counter, exposition, gauge, labelled

if TYPE_CHECKING:
    from milepost.service.membership import Membership
    from milepost.service.udp import UdpService

_TEXT = "text/plain; charset=utf-8"


class Figures:
    """Asked by whoever operates the edge."""

    def __init__(self, name: str, door: MqttDoor, udp: "UdpService | None" = None, site: "Membership | None" = None) -> None:
        self._name = name
        self._door = door
        self._udp = udp
        self._site = site
        self._started_at = monotonic()
        self.is_ready = True
        """Whether new clients are welcome."""

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """What is asked for over HTTP."""
        del method
        trouble = self._door.desk.corridor.trouble
        match path:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, exposition(self._families())
            case "/health":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/ready" if self.is_ready and trouble is None:
                return HTTPStatus.OK, _TEXT, b"ready\n"
            case "/ready":
                return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"not ready: {trouble or 'stopping'}\n".encode()
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /health and /ready\n"

    def _families(self) -> Iterator[Family]:
        door, corridor = self._door, self._door.desk.corridor
        counts = corridor.counts
        yield gauge("milepost_up_seconds", "Seconds since the start.", monotonic() - self._started_at)
        yield gauge("milepost_connections", "Open connections.", len(door.links))
        yield gauge("milepost_sessions", "Sessions, connected or kept.", len(corridor.sessions))
        yield gauge("milepost_subscriptions", "Subscriptions.", len(corridor.matcher))
        yield gauge("milepost_retained_messages", "Retained messages.", len(corridor.retained))
        yield gauge("milepost_retained_bytes", "Bytes of retained messages.", corridor.retained.size)
        yield gauge("milepost_waiting_bytes", "Bytes of messages that wait for somebody.", corridor.deliveries.waiting_bytes)
        yield gauge("milepost_storage_ok", "1 while what must be kept can be kept.", int(corridor.trouble is None))
        yield counter("milepost_messages_accepted_total", "Messages let in.", counts.accepted)
        yield counter("milepost_messages_delivered_total", "Messages sent, once for each receiver.", counts.delivered)
        yield counter("milepost_sessions_opened_total", "New sessions.", counts.sessions_opened)
        yield counter("milepost_sessions_resumed_total", "Sessions taken up again.", counts.sessions_resumed)
        yield counter("milepost_reports_total", "Reports of places that were let in.", counts.reports)
        yield counter("milepost_reports_outside_total", "Of these, those from outside the coverage.", counts.reports_outside)
        yield counter("milepost_alerts_total", "Alerts that the edge raised.", corridor.alerts.raised)
        yield counter("milepost_received_bytes_total", "Bytes that came in.", door.bytes_received)
        yield counter("milepost_sent_bytes_total", "Bytes that went out.", door.desk.sender.bytes_sent)
        yield counter("milepost_faults_total", "Faults of ours that cost a connection.", counts.faults)
        if self._udp is not None:
            yield from _udp_families(self._udp)
        if self._site is not None:
            yield from self._site.families()
        refused = [(reason.name, count) for reason, count in sorted(counts.refused.items())]
        yield labelled("milepost_refused_total", Kind.COUNTER, "What was not let in, by reason.", "reason", refused)
        dropped = [(reason.name, count) for reason, count in sorted(counts.dropped.items())]
        what = "What was let in and did not reach a receiver, by reason."
        yield labelled("milepost_dropped_total", Kind.COUNTER, what, "reason", dropped)

    def publish(self, now: Instant) -> None:
        """Say the most important figures below `$SYS/`, retained."""
        corridor = self._door.desk.corridor
        for topic, value in self._system_topics():
            parcel = Parcel(f"$SYS/broker/{topic}", value.encode(), now, source=EndpointId(self._name), is_retained=True)
            corridor.publish(parcel, now)

    def _system_topics(self) -> Iterator[tuple[str, str]]:
        door, corridor = self._door, self._door.desk.corridor
        counts = corridor.counts
        connected = sum(session.link is not NOWHERE for session in corridor.sessions)
        yield "version", f"milepost {__version__}"
        yield "uptime", f"{int(monotonic() - self._started_at)} seconds"
        yield "clients/connected", str(connected)
        yield "clients/disconnected", str(len(corridor.sessions) - connected)
        yield "clients/total", str(len(corridor.sessions))
        yield "subscriptions/count", str(len(corridor.matcher))
        yield "retained messages/count", str(len(corridor.retained))
        yield "messages/received", str(counts.accepted)
        yield "messages/sent", str(counts.delivered)
        yield "publish/messages/dropped", str(counts.dropped.total())
        yield "bytes/received", str(door.bytes_received)
        yield "bytes/sent", str(door.desk.sender.bytes_sent)


def _udp_families(udp: "UdpService") -> Iterator[Family]:
    door, sender = udp.door, udp.door.sender
    yield gauge("milepost_udp_sessions", "Open UDP sessions.", len(door.tenants))
    yield gauge("milepost_udp_pending", "UDP sessions that were answered and have not spoken yet.", door.pending)
    yield counter("milepost_udp_received_total", "Datagrams that came in.", door.datagrams_received)
    yield counter("milepost_udp_received_bytes_total", "Bytes of datagrams that came in.", door.bytes_received)
    yield counter("milepost_udp_sent_total", "Datagrams handed to the network.", sender.datagrams_sent)
    yield counter("milepost_udp_sent_bytes_total", "Bytes of datagrams handed to the network.", sender.bytes_sent)
    yield counter("milepost_udp_failed_total", "Datagrams that the system refused to send.", udp.entrance.failed)
