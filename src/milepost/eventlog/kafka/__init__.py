"""The log on Kafka: the same guarantees as the embedded log, on a cluster shared by several machines."""

from milepost.eventlog.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
