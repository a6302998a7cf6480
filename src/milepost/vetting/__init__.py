"""Vetting: the checks of admission. Access to topics, rates, payload rules, and the plausibility of messages and reports.

A verdict is a value: None accepts, `Refused` has the reason code and detail; for a batch of reports it is one number each, 0 or
the reason code. The rules are plain dataclasses that the configuration fills; no file and no clock is read here. The order of
checks for a batch: rates (`Buckets`), then rounds (`in_rounds`), then `vet_reports`.
"""

from milepost.vetting.access import AccessAction, AccessList, AccessRule, ClientIdentity
from milepost.vetting.messages import MessageLimits, vet_message
from milepost.vetting.payloads import PayloadCheck, PayloadChecks, PayloadRule
from milepost.vetting.rates import Bucket, Buckets, PrefixBuckets
from milepost.vetting.reports import (
    OutsidePolicy,
    PreviousReports,
    ReportColumns,
    ReportLimits,
    are_outside,
    in_rounds,
    vet_reports,
)
from milepost.vetting.reputation import Reputations, Scores
from milepost.vetting.send_limits import SendCase, SenderPosition, vet_limits

__all__ = [
    "AccessAction",
    "AccessList",
    "AccessRule",
    "Bucket",
    "Buckets",
    "ClientIdentity",
    "MessageLimits",
    "OutsidePolicy",
    "PayloadCheck",
    "PayloadChecks",
    "PayloadRule",
    "PrefixBuckets",
    "PreviousReports",
    "ReportColumns",
    "ReportLimits",
    "Reputations",
    "Scores",
    "SendCase",
    "SenderPosition",
    "are_outside",
    "in_rounds",
    "vet_limits",
    "vet_message",
    "vet_reports",
]
