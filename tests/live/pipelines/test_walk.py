"""A report becomes an alert: the whole path in one process, and the files it runs through (docs/walk.md)."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from edge_in_memory import SMALL, START, Client, EdgeInMemory
from milepost.eventlog.log import Entry
from milepost.eventlog.memory import MemoryLog, MemoryStore
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.incidents.engine import CELLS, STATE, IncidentEngine
from milepost.model.incidents import EventKind
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import PIPELINES
from milepost.model.site_records import EdgeRef
from milepost.pipelines.hazards import plans
from milepost.pipelines.records import LOG_ROW, MESSAGES_TOPIC
from milepost.pipelines.settings import PipelineSettings
from milepost.runtime.membership import SiteLink
from milepost.runtime.site_logs import request_messages
from milepost.wire.mqtt import Properties, Publish, Version, encode
from tracing import traced_files, walk_files, without_model

SECTION: Final = "A report becomes an alert"
FILES_MAX: Final = 55
"""The current number; the aim is 45."""
PROCESSES: Final = frozenset({"listeners/event_loop.py", "pipelines/runner.py", "runtime/incidents.py"})
"""Files that drive the path where its parts are processes of their own. They count, and the test replaces them."""

KIND: Final = EventKind("Ice", "Ice", "reports >= 3", "Alert/Ice", interval_s=1.0, slots=5)
TOWNS: Final = ("40.7608,-111.891", "40.2338,-111.6585")
WITNESSES: Final = 3


class SiteEdge(EdgeInMemory):
    """An edge of a site over a log in memory."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        super().__init__(limits=SMALL)
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.member = SiteMember(self.broker, EdgeRef("north", name), SiteLimits())
        self.link = SiteLink(self.member, store.open(), self.calls.append, self.log)
        self.link.start()

    def tick(self, now: Instant) -> None:
        """One tick of the event loop."""
        self.now = now
        while self.calls:
            self.calls.popleft()(now)
        self.run_ticks()
        self.link.flush(now)


class Site:
    """Two edges, the log, the incident engine, and Spark between the topics of messages and of cells."""

    def __init__(self, spark: SparkSession) -> None:
        self.now = START
        self.spark = spark
        self.store = MemoryStore(lambda: self.now)
        self.log: MemoryLog = self.store.open()
        for topic in (CELLS, STATE, MESSAGES_TOPIC):
            self.log.make(topic)
        self.edges = [SiteEdge(self.store, "a"), SiteEdge(self.store, "b")]
        self.engine = IncidentEngine("north", [KIND], allowed_lateness_s=0.0, since=START)
        self.plan = plans(PipelineSettings(kinds=(KIND,)))[0]
        self.read_up_to = 0
        request_messages(self.log, "north", PIPELINES, ["#"])
        self.run_ticks()

    def run_ticks(self) -> None:
        for _ in range(20):
            self.now = Instant(self.now + SECOND_NS // 100)
            for edge in self.edges:
                edge.tick(self.now)
            self.store.run_all()

    def connect(self, edge: int, name: str, place: str) -> Client:
        """Connect a vehicle that has reported its position."""
        return self.edges[edge].connect(name, properties=Properties(user=(("milepost-report", place),)))

    def run_pipeline(self) -> None:
        """One batch of the query `hazards`, from the log to the log."""
        first, end = self.log.ends(MESSAGES_TOPIC)
        records = self.log.read(MESSAGES_TOPIC, max(first, self.read_up_to), end)
        self.read_up_to = end
        appended_at = datetime.fromtimestamp(self.now // SECOND_NS, UTC)
        rows = [(one.topic, one.key, (one.value or b"").decode(), one.offset, appended_at) for one in records]
        batch = self.spark.createDataFrame(rows, LOG_ROW)
        cells = self.plan.transform(batch).collect()
        self.log.append([Entry(row.topic, row.key, row.value.encode()) for row in cells])
        self.store.run_all()

    def run_incidents(self, first: int) -> None:
        """Process new cells as the incidents process does, also after the end of their slot."""
        records = self.log.read(CELLS, first, 100)
        self.engine.add_cells([one.value for one in records], self.now)
        self.now = Instant(self.now + 2 * SECOND_NS)
        self.engine.tick(self.now)
        self.log.append([Entry(*one) for one in self.engine.take_appends()])
        self.store.run_all()


def report_becomes_alert(site: Site, witnesses: list[Client]) -> None:
    """Publish an event at one edge by each witness, and run every part until the alert is delivered at the other."""
    event = encode(Publish(KIND.topic, b"", 1, False, False, 1), Version.V5)
    for client in witnesses:
        client.send_bytes(event)
    site.run_ticks()
    first = site.log.ends(CELLS)[1]
    site.run_pipeline()
    site.run_incidents(first)
    site.run_ticks()


def test_a_report_becomes_an_alert_through_the_files_that_the_walk_names(spark: SparkSession) -> None:
    site = Site(spark)
    drivers = [site.connect(1, f"driver-{number}", town) for number, town in enumerate(TOWNS)]
    witnesses = [
        [site.connect(0, f"car-{town}-{number}", place) for number in range(WITNESSES)] for town, place in enumerate(TOWNS)
    ]
    site.run_ticks()
    report_becomes_alert(site, witnesses[0])  # the topics are known from now on
    assert [len(driver.messages()) for driver in drivers] == [1, 0]
    files = without_model(traced_files(lambda: report_becomes_alert(site, witnesses[1]))) | PROCESSES
    assert [[message.topic for message in driver.messages()] for driver in drivers] == [[], [KIND.alert]]
    assert len(files) <= FILES_MAX, sorted(files)
    assert sorted(files ^ walk_files(SECTION)) == [], "docs/walk.md names other files"
