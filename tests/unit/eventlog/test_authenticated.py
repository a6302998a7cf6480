import hmac
from collections.abc import Sequence

import pytest

from conformance.logs import AuthenticatedLogs, MemoryLogs, ReceivedRecords
from milepost.eventlog.authenticated import AuthenticatedLog, RecordAuthenticator
from milepost.eventlog.log import BATCH_RECORDS_MAX, Entry, Log, Record, TopicEnd, TopicSettings, read_to_end

KEY = AuthenticatedLogs.KEY
TOPIC = "vehicle-info"
HOUR_S = 3_600.0


class Site:
    """A log in memory with the site's key, and the same log without it, as a forger has it."""

    def __init__(self) -> None:
        self.logs = AuthenticatedLogs(MemoryLogs())
        self.log = self.logs.open()
        self.plain = self.logs.plain.open()
        self.received = ReceivedRecords()

    def append(self, log: Log, *entries: tuple[str, bytes | None]) -> None:
        log.append([Entry(TOPIC, key, value) for key, value in entries])
        self.logs.wait_idle()

    def follow(self) -> ReceivedRecords:
        self.log.follow({TOPIC: TopicEnd.BEGINNING}, self.received, self.received.on_gap)
        self.logs.wait_idle()
        return self.received

    @property
    def stored(self) -> list[Record]:
        return self.plain.read(TOPIC, 0, 10_000)


def pairs(records: Sequence[Record]) -> list[tuple[str, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_the_code_is_that_of_the_documented_form() -> None:
    (sealed,) = RecordAuthenticator(KEY).sealed([Entry("t", "Ω", b'{"a":1}')])
    message = b't\n=2\n\xce\xa9{"a":1}'
    assert sealed == Entry("t", "Ω", b'{"a":1}\n=' + hmac.new(KEY, message, "sha256").hexdigest().encode())


def test_forged_records_are_dropped_and_reported_and_the_others_arrive() -> None:
    site = Site()
    site.append(site.log, ("a", b"1"))
    site.append(site.plain, ("a", b"forged"), ("b", b""), ("b", b"x" * 200))
    site.append(site.log, ("c", b"2"))
    assert pairs(site.follow().records) == [("a", b"1"), ("c", b"2")]
    assert [record.offset for record in site.logs.refused] == [1, 2, 3]


@pytest.mark.parametrize("change", ["key", "topic", "value", "code", "another site", "mark"])
def test_a_code_is_valid_for_its_record_and_site_only(change: str) -> None:
    site = Site()
    site.append(site.log, ("a", b"value"))
    (record,) = site.stored
    stored, topic, key = record.value or b"", TOPIC, "a"
    if change == "key":
        key = "b"
    elif change == "topic":
        topic = "reputation"
    elif change == "value":
        stored = b"other" + stored[5:]
    elif change == "code":
        stored = stored[:-1] + (b"0" if stored[-1:] != b"0" else b"1")
    elif change == "mark":
        stored = b"\n-" + stored[-64:]
    else:
        (other,) = RecordAuthenticator(bytes(32)).sealed([Entry(TOPIC, "a", b"value")])
        stored = other.value or b""
    site.plain.append([Entry(topic, key, stored)])
    site.logs.wait_idle()
    site.log.follow({topic: site.plain.ends(topic)[1] - 1}, site.received, site.received.on_gap)
    site.logs.wait_idle()
    assert site.received.records == []
    assert len(site.logs.refused) == 1


def test_a_batch_of_forged_records_is_not_handed_over_and_reading_goes_on() -> None:
    site = Site()
    received = site.follow()
    site.append(site.plain, *[("a", b"forged")] * 10)
    assert received.batches == []
    site.append(site.log, ("a", b"1"))
    assert pairs(received.records) == [("a", b"1")]


def test_a_forged_tombstone_removes_nothing_at_readers_and_is_reported() -> None:
    site = Site()
    site.append(site.log, ("a", b"1"))
    site.append(site.plain, ("a", None))
    assert pairs(site.follow().records) == [("a", b"1")]
    assert pairs(site.log.read(TOPIC, 0, 10)) == [("a", b"1")]
    assert [record.offset for record in site.logs.refused] == [1]


def test_a_forged_removal_removes_nothing_at_readers() -> None:
    site = Site()
    site.append(site.log, ("a", b"1"))
    site.append(site.plain, ("a", b"\n-" + b"0" * 64), ("a", None))
    assert pairs(site.follow().records) == [("a", b"1")]
    assert [record.offset for record in site.logs.refused] == [1, 2]


def test_a_removal_arrives_once_and_its_tombstone_is_not_reported() -> None:
    site = Site()
    site.append(site.log, ("a", b"1"), ("a", None), ("b", None))
    assert pairs(site.follow().records) == [("a", b"1"), ("a", None), ("b", None)]
    assert pairs(site.log.read(TOPIC, 0, 10)) == [("a", b"1"), ("a", None), ("b", None)]
    assert site.logs.refused == []


def test_a_removal_stays_for_an_hour_so_that_slow_readers_get_it_and_leaves_nothing_behind() -> None:
    site = Site()
    site.log.make(TOPIC, TopicSettings(is_compacted=True))
    site.append(site.log, ("a", b"1"), ("a", None))
    site.logs.pass_time(HOUR_S / 2)
    site.append(site.log, ("poke", b""))
    assert [record.key for record in site.stored] == ["a", "a", "poke"], "the value is gone"
    assert pairs(site.log.read(TOPIC, 0, 10)) == [("a", None), ("poke", b"")]
    site.logs.pass_time(HOUR_S)
    site.append(site.log, ("poke", b""))
    assert [record.key for record in site.stored] == ["poke"]


def test_an_old_tombstone_whose_removal_is_gone_is_not_reported() -> None:
    site = Site()
    site.append(site.plain, ("a", None))
    site.logs.pass_time(HOUR_S + 1)
    assert site.follow().records == []
    assert site.logs.refused == []


@pytest.mark.parametrize("forged", [1, 10, 3 * BATCH_RECORDS_MAX])
def test_reading_skips_forged_records_up_to_the_next_authentic_one_or_the_end(forged: int) -> None:
    site = Site()
    site.append(site.plain, *[("x", b"forged")] * forged)
    assert site.log.read(TOPIC, 0, 1) == []
    site.append(site.log, ("a", b"1"), ("b", b"2"))
    assert pairs(site.log.read(TOPIC, 0, 1)) == [("a", b"1")]
    assert pairs(site.log.read(TOPIC, 0, 100)) == [("a", b"1"), ("b", b"2")]
    site.append(site.plain, *[("x", b"forged")] * forged)
    assert [pairs(batch) for batch in read_to_end(site.log, TOPIC)] == [[("a", b"1"), ("b", b"2")]]


def test_without_the_key_a_reader_sees_the_codes_and_with_another_one_nothing() -> None:
    site = Site()
    site.append(site.log, ("a", b"1"))
    assert (site.stored[0].value or b"").startswith(b"1\n=")
    assert AuthenticatedLog(site.logs.plain.open(), bytes(32)).read(TOPIC, 0, 10) == []
