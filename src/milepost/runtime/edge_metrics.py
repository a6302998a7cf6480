"""The metrics of an edge: as Prometheus metric families, and the most important ones below `$SYS/`."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from milepost import __version__
from milepost.broker.publication import Publication
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.instants import Instant
from milepost.runtime.metrics import Family, MetricType, counter, gauge, labelled

if TYPE_CHECKING:
    from milepost.runtime.membership import Membership
    from milepost.runtime.udp import UdpService


class EdgeMetrics:
    """Reads the counters of an edge's parts."""

    def __init__(
        self, up_s: Callable[[], float], mqtt: MqttListener, udp: "UdpService | None", site: "Membership | None"
    ) -> None:
        self._up_s = up_s
        self._mqtt = mqtt
        self._udp = udp
        self._site = site

    def families(self) -> Iterator[Family]:
        """Return the metrics of the broker, its listeners and its membership in a site."""
        mqtt, broker = self._mqtt, self._mqtt.context.broker
        counts, gauges = broker.counts, broker.statistics()
        yield gauge("milepost_connections", "Open MQTT connections.", len(mqtt.connections))
        yield gauge("milepost_sessions", "Sessions, connected or stored.", gauges.sessions)
        yield gauge("milepost_subscriptions", "Subscriptions.", gauges.subscriptions)
        yield gauge("milepost_retained_messages", "Retained messages.", gauges.retained_messages)
        yield gauge("milepost_retained_bytes", "Bytes of retained messages.", gauges.retained_bytes)
        yield gauge("milepost_queued_bytes", "Bytes of queued messages.", gauges.queued_bytes)
        yield gauge("milepost_storage_ok", "1 while storage is available.", int(broker.storage_error is None))
        yield counter("milepost_messages_accepted_total", "Accepted messages.", counts.accepted)
        yield counter("milepost_messages_delivered_total", "Deliveries: one per message and receiver.", counts.delivered)
        yield counter("milepost_sessions_opened_total", "New sessions.", counts.sessions_opened)
        yield counter("milepost_sessions_resumed_total", "Resumed sessions.", counts.sessions_resumed)
        yield counter("milepost_sessions_replaced_total", "Sessions replaced by another owner.", counts.sessions_replaced)
        yield counter("milepost_reports_total", "Accepted position reports.", counts.reports)
        yield counter(
            "milepost_reports_outside_total", "Accepted position reports from outside the coverage.", counts.reports_outside
        )
        yield counter("milepost_alerts_total", "Alerts raised by the edge.", gauges.alerts_raised)
        yield counter("milepost_received_bytes_total", "Received bytes.", mqtt.bytes_received)
        yield counter("milepost_sent_bytes_total", "Sent bytes.", mqtt.context.sender.bytes_sent)
        yield counter("milepost_internal_errors_total", "Internal errors that closed a connection.", counts.faults)
        if self._udp is not None:
            yield from _udp_families(self._udp)
        if self._site is not None:
            yield from self._site.families()
        refused = [(reason.name, count) for reason, count in sorted(counts.refused.items())]
        yield labelled("milepost_refused_total", MetricType.COUNTER, "Refusals, by reason.", "reason", refused)
        dropped = [(reason.name, count) for reason, count in sorted(counts.dropped.items())]
        what = "Accepted messages that were not delivered to a receiver, by reason."
        yield labelled("milepost_dropped_total", MetricType.COUNTER, what, "reason", dropped)

    def publish_system_topics(self, now: Instant) -> None:
        """Publish the most important metrics below `$SYS/`, retained."""
        broker = self._mqtt.context.broker
        for topic, value in self._system_topics():
            publication = Publication(f"$SYS/broker/{topic}", value.encode(), now, source=broker.source, is_retained=True)
            broker.accept(publication, None, now)

    def _system_topics(self) -> Iterator[tuple[str, str]]:
        mqtt, broker = self._mqtt, self._mqtt.context.broker
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
        yield "bytes/received", str(mqtt.bytes_received)
        yield "bytes/sent", str(mqtt.context.sender.bytes_sent)


def _udp_families(udp: "UdpService") -> Iterator[Family]:
    mqtt, sender = udp.listener, udp.listener.sender
    yield gauge("milepost_udp_sessions", "Open UDP sessions.", len(mqtt.session_table))
    yield gauge("milepost_udp_pending", "UDP sessions that were acknowledged and have not sent a datagram yet.", mqtt.pending)
    yield counter("milepost_udp_received_total", "Received datagrams.", mqtt.datagrams_received)
    yield counter("milepost_udp_received_bytes_total", "Bytes of received datagrams.", mqtt.bytes_received)
    yield counter("milepost_udp_sent_total", "Sent datagrams.", sender.datagrams_sent)
    yield counter("milepost_udp_sent_bytes_total", "Bytes of sent datagrams.", sender.bytes_sent)
    yield counter("milepost_udp_failed_total", "Datagrams that could not be sent.", udp.socket.failed)
