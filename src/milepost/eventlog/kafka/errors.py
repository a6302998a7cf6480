"""Errors of Kafka's client library as `LogUnavailable` (transient) and `LogRefused` (permanent), each with its remedy."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from milepost.eventlog.log import LogRefused, LogUnavailable

_NOT_ALLOWED: Final = "give this client the right to (docs/how-to/kafka.md has the list)"
_DELETED: Final = "somebody has deleted the topic; what is appended later makes it again, with the usual settings"
_TOO_LARGE: Final = "raise `max.message.bytes` of the topic to 1 MB or more"

_REFUSED: Final = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    KafkaError.INVALID_CONFIG: "the cluster does not take these settings of a topic: make the topic by hand",
    KafkaError.INVALID_MSG_SIZE: _TOO_LARGE,
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    KafkaError.INVALID_RECORD: "the topic has rules of its own that this breaks: look at its settings",
    KafkaError.POLICY_VIOLATION: "the cluster has a policy against it: make the topic by hand",
    KafkaError.TOPIC_EXCEPTION: "Kafka cannot have a topic of that name: choose another, or another prefix",
    KafkaError.UNSUPPORTED_VERSION: "the cluster is too old: Kafka 3 or 4 is needed",
}

_UNAVAILABLE: Final = {
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached: look whether they run, and at the address",
    KafkaError._AUTHENTICATION: "the cluster does not know this client: look at its name, password or certificate",
    KafkaError._RESOLVE: "the name cannot be resolved: look at the address",
    KafkaError._SSL: "the encrypted connection failed: look at the certificates",
    KafkaError._TIMED_OUT: "no answer in time: look whether the brokers run, and at the network",
    KafkaError._TRANSPORT: "the connection failed: look whether the brokers run, and at the address",
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: "the cluster has lost records that it had confirmed: look at its disks",
    KafkaError.NOT_ENOUGH_REPLICAS: "too few brokers have a copy: start those that are down",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "too few brokers have a copy: start those that are down",
    KafkaError.INVALID_REPLICATION_FACTOR: "too few brokers run for so many copies: start those that are down",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the cluster does not know this client: look at its name and password",
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
        return LogRefused(_told(error, address, _REFUSED[code]))
    return LogUnavailable(_told(error, address, _UNAVAILABLE.get(code, "it is tried again")))


def closed() -> LogUnavailable:
    """Return the fault for use of a closed log."""
    return LogUnavailable("the log was closed")


def _told(error: KafkaError, address: str, advice: str) -> str:
    return f"Kafka at {address}: {error.str()} ({error.name()}): {advice}"


class Trouble:
    """The cluster's current fault, by the most recent operation; thread-safe."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.text: str | None = None

    def found(self, error: KafkaError) -> None:
        """Record an error; also the library's callback for a lost broker."""
        # One lost broker of several is no trouble: the library uses the others, and reports when none is left.
        if error.code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT) or self.text is not None:
            self.text = str(fault_of(error, self._address))

    def told(self, fault: Exception) -> None:
        """Record a fault."""
        self.text = str(fault)

    def passed(self) -> None:
        """Clear the fault: an operation succeeded."""
        if self.text is not None:
            self.text = None
