"""Which fields arrived: protobuf itself requires none, this protocol does."""

from google.protobuf.message import Message as Part

from milepost.model.reasons import Malformed, Reason


def require(part: Part, *names: str) -> None:
    """Refuse a part in which one of these fields did not arrive."""
    for name in names:
        if not part.HasField(name):
            raise missing(part, name)


def missing(part: Part, name: str) -> Malformed:
    """The error for a field, or a choice of fields, that did not arrive."""
    return Malformed(Reason.FIELD_MISSING, f"{part.DESCRIPTOR.name}.{name} is missing")
