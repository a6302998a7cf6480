"""What the centre and whoever runs it hand each other: records that were read, records to append, records to read again."""

from typing import NamedTuple

from milepost.model.instants import Instant


class Incoming(NamedTuple):
    """A record that was read from a topic."""

    offset: int
    key: str
    value: bytes | None
    appended_at: Instant


class Append(NamedTuple):
    """A record for the log of a site; those for one site are to be appended in the order they are taken."""

    site: str
    topic: str
    key: str
    value: bytes | None
    stream: str = ""
    """The site whose cross-hub it is copied from: what was read there is dealt with when this is safe."""


class ReadBack(NamedTuple):
    """A wish to have records of a site's cross-hub once more; the site's stream waits until they are there."""

    site: str
    first: int
    """From this offset on,"""
    since: Instant
    """of what was appended at this instant or later,"""
    before: int
    """up to this offset, exclusively."""
