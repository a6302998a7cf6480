"""Limits of an edge as a member of a site, each a key of the configuration file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """Limits of the outbox, of handovers, and of the records held in memory."""

    spool_messages_max: int = 100_000
    """Maximum messages spooled for the log; beyond it, messages that would have to be spooled are refused."""
    spool_bytes_max: int = 256_000_000
    """Maximum bytes spooled for the log."""
    handover_timeout_s: float = 5.0
    """Maximum wait of a client whose session may be at another edge."""
    prediction_s: float = 10.0
    """Horizon of the prediction of an endpoint's next edge; 0: no prediction."""
    prepared_s: float = 30.0
    """Time for which an edge stays prepared for an announced endpoint."""
    position_interval_s: float = 5.0
    """Interval of position updates to the registry; 0: none."""
    feed_interval_s: float = 0.2
    """Batching interval of reports, and of the delivery states of messages to areas, for the pipelines; 0: none are sent."""
    registry_max: int = 1 << 20
    """Maximum endpoints in the site's registry."""
    recent_records_max: int = 20_000
    """Maximum log records cached for arriving endpoints."""
    recent_bytes_max: int = 32_000_000
    """Maximum bytes of these records."""

    def __post_init__(self) -> None:
        for name in ("handover_timeout_s", "prediction_s", "prepared_s", "position_interval_s", "feed_interval_s"):
            if not 0 <= getattr(self, name) <= 3_600:
                raise ValueError(f"{name} is {getattr(self, name)}, not in 0..3600")
