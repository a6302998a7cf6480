"""Values between the central hub and the process that runs it: records to append, records to read again, counters."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from milepost.model.instants import Instant


class DropReason(Enum):
    """Why a record was not handled, or not completely."""

    UNREADABLE = "unreadable"
    """No JSON, or not a record."""
    FALSE = "false"
    """Its sender belongs to another site than the log it is in."""
    ENDPOINT_UNKNOWN = "endpoint unknown"
    """Addressed to an endpoint that is at no site."""
    SITE_UNKNOWN = "site unknown"
    """For an edge of a site that this hub does not join."""
    REGISTER_FULL = "register full"
    """A claim for which there was no room."""
    TOO_OLD = "too old"
    """Earlier messages of a move could not be read again."""


@dataclass(slots=True)
class HubCounts:
    """Counters since the start."""

    copied: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages and addressed records, by source and destination site."""
    repeated: int = 0
    """Records that were there already, and not copied again."""
    dropped: Counter[DropReason] = field(default_factory=Counter)
    moves_started: int = 0
    """Handovers between sites."""
    moves_finished: int = 0
    """Handovers between sites that were taken."""
    missed_messages: int = 0
    """Messages sent to a moving endpoint alone."""
    claim_notices: int = 0
    """Notices to edges that their endpoint is elsewhere."""
    questions_answered: int = 0
    """Answers to edges about the previous edge of an endpoint."""


class HubAppend(NamedTuple):
    """A record for the log of a site; those for one site are appended in the order they are taken."""

    site: str
    topic: str
    key: str
    value: bytes | None
    stream: str = ""
    """The site whose cross-hub it is copied from: the original is handled when this append is confirmed."""


class HubReadBack(NamedTuple):
    """A request for records of a site's cross-hub; the site's stream waits for them."""

    site: str
    first: int
    """The first offset."""
    since: Instant
    """Records appended earlier are not needed."""
    before: int
    """The offset after the last record."""
