"""Admission rules from the settings: access, payloads and priorities, and the limits of messages."""

from pathlib import Path
from typing import TYPE_CHECKING

from milepost.broker.admission import AdmissionRules
from milepost.broker.alert_rules import alert_topics
from milepost.config.errors import UsageFault, cannot_read
from milepost.config.settings import Settings
from milepost.model.messages import BODY_BYTES_MAX
from milepost.model.reasons import Malformed
from milepost.vetting import MessageLimits
from milepost.vetting.access import AccessList
from milepost.vetting.payloads import PayloadChecks

if TYPE_CHECKING:
    from milepost.runtime.passwords import Users


def read_rules(settings: Settings, users: "Users | None" = None) -> AdmissionRules:
    """Return the rules of the settings, with the schema files they name; *users*: those of the users file."""
    has_certificate_users = any(one.client_ca for one in settings.mqtt.listen)
    schemas = {one.schema: _content(one.schema) for one in settings.rules.payload if one.schema}
    priorities = tuple((one.topic, one.priority) for one in settings.rules.priority)
    system_topics = alert_topics(settings.rules.alert, settings.incidents.kinds, priorities)
    try:
        return AdmissionRules(
            AccessList(settings.access.rules, system_topics, settings.access.geocast_m),
            PayloadChecks([one.rule for one in settings.rules.payload], schemas),
            priorities,
            needs_password=bool(settings.access.users),
            allows_anonymous=settings.access.anonymous,
            client_ids=settings.access.client_ids,
            other_user=settings.access.other_user,
            users=None if users is None or has_certificate_users else users.names,
            kinds=settings.incidents.kinds,
        )
    except Malformed as fault:
        raise UsageFault(f"[access] or [rules]: {fault}") from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from None


def message_limits(settings: Settings) -> MessageLimits:
    """Return the plausibility limits of messages: the time bounds and the speed of reports."""
    reports = settings.vetting.reports
    return MessageLimits(
        BODY_BYTES_MAX,
        reports.clock_ahead_s_max,
        reports.clock_behind_s_max,
        reports.move_mps_max,
        settings.vetting.rights_after_s,
    )
