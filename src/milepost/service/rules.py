"""Rules: what the settings say clients may do and must send, made ready for the door."""

from pathlib import Path

from milepost.doors.rules import Rules
from milepost.model.reasons import Malformed
from milepost.service.faults import UsageFault, cannot_read
from milepost.service.settings import Settings
from milepost.vetting.access import Access
from milepost.vetting.payloads import Payloads


def read_rules(settings: Settings) -> Rules:
    """The rules of some settings, with the schema files they name."""
    schemas = {one.schema: _content(one.schema) for one in settings.rules.payload if one.schema}
    try:
        return Rules(
            Access(settings.access.rules),
            Payloads([one.rule for one in settings.rules.payload], schemas),
            tuple((one.topic, one.priority) for one in settings.rules.priority),
            needs_password=bool(settings.access.users),
        )
    except Malformed as fault:
        raise UsageFault(f"[access] or [rules]: {fault}") from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from None
