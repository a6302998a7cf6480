"""Payloads: rules for the content of messages on a topic.

The first rule whose filter matches a topic decides, also if it demands nothing, so that a part of a tree can be exempted. The
caller looks up the check of a topic once and caches it; the check itself runs for every message.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.topics import check_filter, covers, levels_of

if TYPE_CHECKING:
    from jsonschema_rs import Validator

PayloadCheck = Callable[[bytes], Refused | None]
"""Checks one payload."""

_DETAIL_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """The required form of payloads on the topics of a filter: JSON, or JSON that conforms to a schema."""

    topics: str
    json: bool = False
    schema: str | None = None
    """The file with a JSON Schema; it implies `json`."""

    def __post_init__(self) -> None:
        check_filter(self.topics)


class PayloadChecks:
    """The compiled rules; `schemas` holds the content of every schema file that they name."""

    def __init__(self, rules: Sequence[PayloadRule] = (), schemas: Mapping[str, bytes] | None = None) -> None:
        checks = {name: _schema_check(name, content) for name, content in (schemas or {}).items()}
        self._rules = tuple((levels_of(rule.topics), _check_of(rule, checks)) for rule in rules)

    def check_for(self, topic: str) -> PayloadCheck | None:
        """Return the check for payloads on a topic; None if all are allowed."""
        levels = levels_of(topic)
        return next((check for outer, check in self._rules if covers(outer, levels)), None)


def _check_of(rule: PayloadRule, checks: Mapping[str, PayloadCheck]) -> PayloadCheck | None:
    if rule.schema is None:
        return _check_json if rule.json else None
    if rule.schema not in checks:
        raise Malformed(Reason.FIELD_MISSING, f"the schema {rule.schema} of the rule for {rule.topics} is missing")
    return checks[rule.schema]


def _check_json(payload: bytes) -> Refused | None:
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError as fault:
        return _not_json(fault)
    return None


def _schema_check(name: str, content: bytes) -> PayloadCheck:
    # Imported here: it takes 7 MB of memory, which edges without schemas save.
    from jsonschema_rs import validator_for  # noqa: PLC0415

    try:
        validator = validator_for(orjson.loads(content), offline=True)  # remote $refs are not fetched
    except ValueError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"the schema {name}: {_shortened(str(fault))}") from None
    is_valid, loads = validator.is_valid, orjson.loads

    def check(payload: bytes) -> Refused | None:
        try:
            document = loads(payload)
            return None if is_valid(document) else Refused(Reason.PAYLOAD_SCHEMA, _first_fault(validator, document))
        except orjson.JSONDecodeError as fault:
            return _not_json(fault)
        except ValueError as fault:  # nested too deep for the validator
            return Refused(Reason.PAYLOAD_SCHEMA, _shortened(str(fault)))

    return check


def _first_fault(validator: "Validator", document: object) -> str:
    fault = next(validator.iter_errors(document))
    path = "/".join(map(str, fault.instance_path))
    return f"{_shortened(path) or 'the document'}: {_shortened(fault.message)}"


def _not_json(fault: orjson.JSONDecodeError) -> Refused:
    return Refused(Reason.PAYLOAD_NOT_JSON, f"{fault.msg} at {fault.pos}")


def _shortened(text: str) -> str:
    """Return the first line, shortened."""
    first = text.partition("\n")[0]
    return first if len(first) <= _DETAIL_CHARACTERS_MAX else first[: _DETAIL_CHARACTERS_MAX - 3] + "..."
