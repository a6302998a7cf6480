"""The metrics of an edge: as Prometheus metric families, and the most important ones below `$SYS/`."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from milepost import __version__
from milepost.broker.publication import Publication
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.runtime.metrics import Family, Kind, counter, gauge, labelled

if TYPE_CHECKING:
    from milepost.runtime.membership import Membership
    from milepost.runtime.udp import UdpService


class EdgeMetrics:
    """Reads the counters of an edge's parts."""

    def __init__(
        self, name: str, up_s: Callable[[], float], door: MqttListener, udp: "UdpService | None", site: "Membership | None"
    ) -> None:
        self._name = name
        self._up_s = up_s
        self._door = door
        self._udp = udp
        self._site = site

    def families(self) -> Iterator[Family]:
        """Return the metrics of the broker, its listeners and its membership in a site."""
        door, broker = self._door, self._door.context.broker
        counts, gauges = broker.counts, broker.statistics()
        yield gauge("milepost_connections", "Open connections.", len(door.links))
        yield gauge("milepost_sessions", "Sessions, connected or kept.", gauges.sessions)
        yield gauge("milepost_subscriptions", "Subscriptions.", gauges.subscriptions)
        yield gauge("milepost_retained_messages", "Retained messages.", gauges.retained_messages)
        yield gauge("milepost_retained_bytes", "Bytes of retained messages.", gauges.retained_bytes)
        yield gauge("milepost_waiting_bytes", "Bytes of messages that wait for somebody.", gauges.waiting_bytes)
        yield gauge("milepost_storage_ok", "1 while what must be kept can be kept.", int(broker.trouble is None))
        yield counter("milepost_messages_accepted_total", "Messages let in.", counts.accepted)
        yield counter("milepost_messages_delivered_total", "Messages sent, once for each receiver.", counts.delivered)
        yield counter("milepost_sessions_opened_total", "New sessions.", counts.sessions_opened)
        yield counter("milepost_sessions_resumed_total", "Sessions taken up again.", counts.sessions_resumed)
        yield counter("milepost_reports_total", "Reports of places that were let in.", counts.reports)
        yield counter("milepost_reports_outside_total", "Of these, those from outside the coverage.", counts.reports_outside)
        yield counter("milepost_alerts_total", "Alerts that the edge raised.", gauges.alerts_raised)
        yield counter("milepost_received_bytes_total", "Bytes that came in.", door.bytes_received)
        yield counter("milepost_sent_bytes_total", "Bytes that went out.", door.context.sender.bytes_sent)
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
        """Publish the most important metrics below `$SYS/`, retained."""
        broker = self._door.context.broker
        for topic, value in self._system_topics():
            publication = Publication(
                f"$SYS/broker/{topic}", value.encode(), now, source=EndpointId(self._name), is_retained=True
            )
            broker.accept(publication, None, now)

    def _system_topics(self) -> Iterator[tuple[str, str]]:
        door, broker = self._door, self._door.context.broker
        counts, gauges = broker.counts, broker.statistics()
        yield "version", f"milepost {__version__}"
        yield "uptime", f"{int(self._up_s())} seconds"
        yield "clients/connected", str(gauges.connected)
        yield "clients/disconnected", str(gauges.sessions - gauges.connected)
        yield "clients/total", str(gauges.sessions)
        yield "subscriptions/count", str(gauges.subscriptions)
        yield "retained messages/count", str(gauges.retained_messages)
        yield "messages/received", str(counts.accepted)
        yield "messages/sent", str(counts.delivered)
        yield "publish/messages/dropped", str(counts.dropped.total())
        yield "bytes/received", str(door.bytes_received)
        yield "bytes/sent", str(door.context.sender.bytes_sent)


def _udp_families(udp: "UdpService") -> Iterator[Family]:
    door, sender = udp.door, udp.door.sender
    yield gauge("milepost_udp_sessions", "Open UDP sessions.", len(door.session_table))
    yield gauge("milepost_udp_pending", "UDP sessions that were answered and have not spoken yet.", door.pending)
    yield counter("milepost_udp_received_total", "Datagrams that came in.", door.datagrams_received)
    yield counter("milepost_udp_received_bytes_total", "Bytes of datagrams that came in.", door.bytes_received)
    yield counter("milepost_udp_sent_total", "Datagrams handed to the network.", sender.datagrams_sent)
    yield counter("milepost_udp_sent_bytes_total", "Bytes of datagrams handed to the network.", sender.bytes_sent)
    yield counter("milepost_udp_failed_total", "Datagrams that the system refused to send.", udp.entrance.failed)
