"""Limits of an edge as part of a site, each a key of the configuration file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """How much waits for the log, and how long endpoints wait for each other's edges."""

    spool_messages_max: int = 100_000
    """Messages that wait for the log; then what would have to go there is refused."""
    spool_bytes_max: int = 256_000_000
    """Their bytes."""
    hold_s: float = 5.0
    """How long a client that may have a session elsewhere waits for it, at most."""
    ahead_s: float = 10.0
    """How far ahead it is worked out which edge an endpoint reaches next; 0: not at all."""
    prepared_s: float = 30.0
    """How long an edge stays prepared for an endpoint that was announced."""
    places_s: float = 5.0
    """How often the register hears where endpoints are; 0: never."""
    reports_s: float = 0.2
    """How long reports, and what becomes of area messages, are gathered before pipelines are told; 0: they are not."""
    register_max: int = 1 << 20
    """Endpoints of the site whose edge is known."""
    recent_records_max: int = 20_000
    """Records of the log that are kept at hand for endpoints that arrive."""
    recent_bytes_max: int = 32_000_000
    """Their bytes."""

    def __post_init__(self) -> None:
        for name in ("hold_s", "ahead_s", "prepared_s", "places_s", "reports_s"):
            if not 0 <= getattr(self, name) <= 3_600:
                raise ValueError(f"{name} is {getattr(self, name)}, not in 0..3600")
