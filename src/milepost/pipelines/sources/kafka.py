"""A site's log on Kafka, by Spark's connector.

Invariants: a record is read at least once and appended at least once. After a crash records are read again and outputs appended
again, which is why every output has a key or an id by which readers recognise duplicates. If the site has a key, records without
a valid code of it (`eventlog.authenticated`) are dropped before anything else sees them, and every output gets one. The codes are
computed by Spark's own functions; outputs are values, never removals.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from milepost.eventlog.authenticated import VALUE_START
from milepost.eventlog.log import CODE_BYTES, RECORD_BYTES_MAX
from milepost.pipelines.sources import records_per_task

_FORMAT: Final = "kafka"
_RECORD_BYTES_MAX: Final = RECORD_BYTES_MAX + 100_000
_JAVA_NAMES: Final = {"sasl.mechanisms": "sasl.mechanism", "ssl.ca.location": "ssl.truststore.location"}
"""Options of librdkafka whose name differs in Kafka's Java client."""
_LOGIN: Final = ("sasl.username", "sasl.password")
_READER: Final = {
    "fetch.max.wait.ms": "100",
    "request.timeout.ms": "10000",
    "default.api.timeout.ms": "15000",  # detect an unreachable cluster, and restart the query, before users notice
}
_WRITER: Final = {
    "acks": "all",
    "linger.ms": "1",
    "delivery.timeout.ms": "30000",
    "request.timeout.ms": "10000",
    "max.request.size": str(_RECORD_BYTES_MAX),
}


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Topics whose names begin with a prefix; `options` are the site's librdkafka options."""

    address: str
    prefix: str
    options: Mapping[str, str]
    site_key: bytes = field(default=b"", repr=False)
    """The key of the site; empty: records are not authenticated."""

    @property
    def is_real_time(self) -> bool:
        """True: Kafka supports it."""
        return True

    def stream(self, session: SparkSession, topics: Sequence[str], *, records_max: int | None) -> DataFrame:
        """Return the records of topics, with schema LOG_ROW, as a stream."""
        reader = session.readStream.format(_FORMAT).options(**self._client_options(_READER), **self._subscribe_options(topics))
        reader = reader.option("startingOffsets", "earliest").option("failOnDataLoss", "false")
        if records_max is not None:
            reader = reader.option("maxOffsetsPerTrigger", records_max)
            reader = reader.option("maxRecordsPerPartition", records_per_task(session, records_max))
        return self._rows(reader.load())

    def table(self, session: SparkSession, topics: Sequence[str]) -> DataFrame:
        """Return all current records of topics, with schema LOG_ROW."""
        return self._rows(
            session.read.format(_FORMAT).options(**self._client_options(_READER), **self._subscribe_options(topics)).load()
        )

    def sink(self, rows: DataFrame, query: str) -> DataStreamWriter:
        """Return the sink of a stream of OUT_ROW."""
        del query  # unused: a repeated batch is appended again
        return self._prefixed(rows).writeStream.format(_FORMAT).options(**self._client_options(_WRITER))

    def append(self, rows: DataFrame) -> None:
        """Append a static DataFrame of OUT_ROW."""
        self._prefixed(rows).write.format(_FORMAT).options(**self._client_options(_WRITER)).save()

    def _subscribe_options(self, topics: Sequence[str]) -> dict[str, str]:
        # The one partition of a topic, as the log reads it: offsets are positions, also if somebody adds partitions meanwhile.
        return {"assign": json.dumps({self.prefix + topic: [0] for topic in topics})}

    def _client_options(self, defaults: Mapping[str, str]) -> dict[str, str]:
        options = {"bootstrap.servers": self.address, **defaults, **java_options(self.options)}
        return {f"kafka.{name}": value for name, value in options.items()}

    def _rows(self, read: DataFrame) -> DataFrame:
        rows = read.withColumn("topic", f.col("topic").substr(len(self.prefix) + 1, 1_000))
        if self.site_key:
            rows = authentic(rows, self.site_key)
        return rows.select(
            "topic",
            f.col("key").cast("string").alias("key"),
            f.col("value").cast("string").alias("value"),
            "offset",
            f.col("timestamp").alias("appended_at"),
        )

    def _prefixed(self, rows: DataFrame) -> DataFrame:
        out = sealed(rows, self.site_key) if self.site_key else rows
        return out.select(f.concat(f.lit(self.prefix), f.col("topic")).alias("topic"), "key", "value")


# Codes of records as in `eventlog.authenticated`: HMAC-SHA256 by its definition (RFC 2104), since Spark has no function for it.


def authentic(records: DataFrame, site_key: bytes) -> DataFrame:
    """Return the records with a valid code, and their values without it; `key` and `value` are binary."""
    size = f.length("value") - CODE_BYTES
    body, code = f.substring("value", f.lit(1), size), f.substring("value", size + 1, f.lit(CODE_BYTES))
    is_authentic = (size >= 0) & (code == _code(site_key, body))
    return records.where(is_authentic).withColumn("value", body)


def sealed(rows: DataFrame, site_key: bytes) -> DataFrame:
    """Return rows of OUT_ROW with codes; their values are binary."""
    value = f.col("value").cast("binary")
    return rows.select("topic", "key", f.concat(value, _code(site_key, value)).alias("value"))


def _code(site_key: bytes, value: Column) -> Column:
    name = f.coalesce(f.col("key").cast("binary"), f.lit(b""))
    size = f.length(name).cast("string").cast("binary")
    start, topic = f.lit(VALUE_START), f.col("topic").cast("binary")
    message = f.concat(topic, start, size, f.lit(b"\n"), name, value)
    return f.concat(start, _hmac_sha256(site_key, message).cast("binary"))


def _hmac_sha256(site_key: bytes, message: Column) -> Column:
    block = site_key.ljust(sha256().block_size, b"\0")
    inner, outer = (f.lit(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))
    return f.sha2(f.concat(outer, f.unhex(f.sha2(f.concat(inner, message), 256))), 256)


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka options translated for Kafka's Java client."""
    found = {_JAVA_NAMES.get(name, name): value for name, value in options.items() if name not in _LOGIN}
    if "ssl.truststore.location" in found:
        found.setdefault("ssl.truststore.type", "PEM")
    certificate, key = found.pop("ssl.certificate.location", ""), found.pop("ssl.key.location", "")
    if certificate and key:  # Java needs both in one keystore; passed as text it needs no extra file
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": Path(certificate).read_text(encoding="ascii")}
        found["ssl.keystore.key"] = Path(key).read_text(encoding="ascii")
    if all(name in options for name in _LOGIN):
        kind = "plain.Plain" if options.get("sasl.mechanisms", "PLAIN") == "PLAIN" else "scram.Scram"
        user, password = (options[name].replace("\\", "\\\\").replace('"', '\\"') for name in _LOGIN)
        module = f"org.apache.kafka.common.security.{kind}LoginModule"
        found["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return found
