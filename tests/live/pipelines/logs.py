"""Logs of sites for pipeline tests, one of each kind, with helpers to append input and read output."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from uuid import uuid4

from milepost.cli.main import main
from milepost.eventlog.log import Entry, Log, Record, read_to_end
from milepost.incidents.engine import CELLS
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import Cell, CellKey
from milepost.model.messages import Message, MessageId
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.pipelines.sources import Source
from milepost.runtime.services.kafka import Kafka
from milepost.runtime.trust_files import read_site_key
from milepost.wire.incidents import cell_from_json
from milepost.wire.records import to_record
from unit.pipelines.hazards_oracle import Sighting, last_of

EDGE = EdgeRef("north", "e1")
WAIT_S = 90.0


@dataclass(frozen=True)
class SiteLog:
    """A log, its Spark source, and the [site] table that names it."""

    log: Log
    source: Source
    table: str

    def append_sightings(self, sightings: Iterable[Sighting]) -> None:
        """Append sightings as edges do."""
        self.append(
            [Entry(MESSAGES_TOPIC, str(EDGE), to_record(ForwardedMessage(EDGE, 1, message_of(one)))) for one in sightings]
        )

    def append(self, entries: Sequence[Entry]) -> None:
        outcome: list[Exception | None] = []
        self.log.append(entries, outcome.append)
        wait_until(lambda: bool(outcome), "records are appended")
        assert outcome == [None]

    def records(self, topic: str) -> Iterator[Record]:
        return chain.from_iterable(read_to_end(self.log, topic))

    def cells(self) -> dict[CellKey, Cell]:
        """Return the valid version of each published cell."""
        return last_of(cell_from_json(record.value) for record in self.records(CELLS) if record.value is not None)


def message_of(sighting: Sighting) -> Message:
    return Message(
        id=MessageId(uuid4().int >> 64),
        source=EndpointId(sighting.endpoint),
        topic=sighting.topic,
        seen_at=sighting.seen_at,
        place=sighting.place,
        fields=dict(sighting.fields),
    )


def embedded_site(folder: Path) -> SiteLog:
    from milepost.eventlog.embedded import EmbeddedLog  # noqa: PLC0415  # imports Spark, only where needed
    from milepost.pipelines.sources.embedded import EmbeddedSource  # noqa: PLC0415

    durability = Durability.PROCESS_CRASH
    table = f'name = "north"\nfolder = "{folder}"\n'
    return SiteLog(EmbeddedLog(folder, durability), EmbeddedSource(folder, durability), table)


def kafka_site(kafka: Kafka) -> SiteLog:
    from milepost.eventlog.kafka import KafkaLog  # noqa: PLC0415  # as above
    from milepost.pipelines.sources.kafka import KafkaSource  # noqa: PLC0415

    prefix = f"p{uuid4().hex[:8]}."
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="test", prefix=prefix)
    table = f'name = "north"\nlog = "kafka"\naddress = "{kafka.address}"\nprefix = "{prefix}"\n'
    return SiteLog(log, KafkaSource(kafka.address, prefix, {}), table)


def with_key(site: SiteLog, key_file: Path) -> SiteLog:
    """Return the same site with a new key in *key_file*."""
    from milepost.eventlog.authenticated import AuthenticatedLog  # noqa: PLC0415  # as above
    from milepost.pipelines.sources.embedded import EmbeddedSource  # noqa: PLC0415
    from milepost.pipelines.sources.kafka import KafkaSource  # noqa: PLC0415

    assert main(["trust", "site-key", str(key_file)]) == 0
    key = read_site_key(key_file)
    if isinstance(site.source, EmbeddedSource):
        source: Source = replace(site.source, key_file=str(key_file))
    else:
        assert isinstance(site.source, KafkaSource)
        source = replace(site.source, site_key=key)
    return SiteLog(AuthenticatedLog(site.log, key), source, f'{site.table}key = "{key_file}"\n')


def wait_until(is_so: Callable[[], object], what: str, *, seconds: float = WAIT_S) -> None:
    give_up_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up_at, f"not within {seconds} s: {what}"
        time.sleep(0.05)
