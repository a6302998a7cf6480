"""Errors of Kafka's client library as `LogUnavailable` (transient) and `LogRefused` (permanent), each with its remedy."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from milepost.eventlog.log import LogRefused, LogUnavailable

_NOT_ALLOWED: Final = "grant this client the permission (docs/how-to/kafka.md has the list)"
_DELETED: Final = "the topic was deleted; the next append creates it again, with default settings"
_TOO_LARGE: Final = "raise `max.message.bytes` of the topic to 1 MB or more"

_REFUSED: Final = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    KafkaError.INVALID_CONFIG: "the cluster rejects these topic settings: create the topic yourself",
    KafkaError.INVALID_MSG_SIZE: _TOO_LARGE,
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    KafkaError.INVALID_RECORD: "the topic's own validation rejects the record: check its settings",
    KafkaError.POLICY_VIOLATION: "a policy of the cluster forbids it: create the topic yourself",
    KafkaError.TOPIC_EXCEPTION: "not a valid Kafka topic name: choose another name or prefix",
    KafkaError.UNSUPPORTED_VERSION: "the cluster is too old: Kafka 3 or 4 is needed",
}

_UNAVAILABLE: Final = {
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached: check that they run, and the address",
    KafkaError._AUTHENTICATION: "the cluster rejects this client: check its name, password or certificate",
    KafkaError._RESOLVE: "the name cannot be resolved: check the address",
    KafkaError._SSL: "the encrypted connection failed: check the certificates",
    KafkaError._TIMED_OUT: "no answer in time: check that the brokers run, and the network",
    KafkaError._TRANSPORT: "the connection failed: check that the brokers run, and the address",
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: "the cluster has lost records that it had confirmed: check its disks",
    KafkaError.NOT_ENOUGH_REPLICAS: "too few in-sync replicas: start those that are down",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "too few in-sync replicas: start those that are down",
    KafkaError.INVALID_REPLICATION_FACTOR: "too few brokers run for this replication factor: start those that are down",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the cluster rejects this client: check its name and password",
    KafkaError.UNKNOWN_TOPIC_OR_PART: _DELETED,
    KafkaError._UNKNOWN_TOPIC: _DELETED,
    KafkaError._UNKNOWN_PARTITION: _DELETED,
    KafkaError._DESTROY: _DELETED,  # the library has dropped a deleted topic, with the records in flight to it
}


def error_in(fault: KafkaException) -> KafkaError:
    """Return the error inside an exception of the library."""
    error = fault.args[0]
    assert isinstance(error, KafkaError)
    return error


def fault_of(error: KafkaError, address: str) -> LogUnavailable | LogRefused:
    """Translate an error of the library for users of the log."""
    code = error.code()
    if code in _REFUSED:
        return LogRefused(_text_of(error, address, _REFUSED[code]))
    return LogUnavailable(_text_of(error, address, _UNAVAILABLE.get(code, "it will be retried")))


def closed() -> LogUnavailable:
    """Return the fault for use of a closed log."""
    return LogUnavailable("the log was closed")


def _text_of(error: KafkaError, address: str, advice: str) -> str:
    return f"Kafka at {address}: {error.str()} ({error.name()}): {advice}"


class ClusterFault:
    """The cluster's current fault, by the most recent operation; thread-safe."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.text: str | None = None

    def note_error(self, error: KafkaError) -> None:
        """Record an error; also the library's callback for a lost broker."""
        # One lost broker of several is no fault: the library uses the others, and reports when none is left.
        if error.code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT) or self.text is not None:
            self.text = str(fault_of(error, self._address))

    def note_fault(self, fault: Exception) -> None:
        """Record a fault."""
        self.text = str(fault)

    def clear(self) -> None:
        """Clear the fault: an operation succeeded."""
        if self.text is not None:
            self.text = None
