"""Vetting: the checks of admission. Access to topics, rates, payload rules, and the plausibility of messages and reports.

A verdict is a value: None accepts, `Refused` has the reason code and detail; for a batch of reports it is one number each, 0 or
the reason code. The rules are plain dataclasses that the configuration fills; no file and no clock is read here. The order of
checks for a batch: rates (`Buckets`), then rounds (`in_rounds`), then `vet_reports`.
"""

from milepost.vetting.access import Access, ClientIdentity, Rule, Verbs
from milepost.vetting.messages import MessageLimits, Stand, vet_message
from milepost.vetting.payloads import Check, PayloadRule, Payloads
from milepost.vetting.rates import Bucket, Buckets, PrefixBuckets
from milepost.vetting.reports import Batch, Before, Outside, ReportLimits, are_outside, in_rounds, vet_reports
from milepost.vetting.reputation import Reputations, Scores

__all__ = [
    "Access",
    "Batch",
    "Before",
    "Bucket",
    "Buckets",
    "Check",
    "ClientIdentity",
    "MessageLimits",
    "Outside",
    "PayloadRule",
    "Payloads",
    "PrefixBuckets",
    "ReportLimits",
    "Reputations",
    "Rule",
    "Scores",
    "Stand",
    "Verbs",
    "are_outside",
    "in_rounds",
    "vet_message",
    "vet_reports",
]
