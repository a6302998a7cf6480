"""The log on Kafka: the same promises as the embedded one, on a cluster that several machines share."""

from milepost.backbone.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
