"""Vetting: whether something is let in. Who may use which topics, how fast, what a payload must be, what of a report is believed.

Verdicts are values: None lets it in, `Refused` says with number and detail why not; for batches of reports a verdict is a number
for each, 0 or that of the reason. The rules are plain dataclasses that the configuration fills; no file is read and no clock is
asked here. The order of what is done with a batch: rates first (`Buckets`), then rounds (`in_rounds`), then `vet_reports`.
"""

from milepost.vetting.access import Access, Rule, Verbs, Who
from milepost.vetting.messages import MessageLimits, Stand, vet_message
from milepost.vetting.payloads import Check, PayloadRule, Payloads
from milepost.vetting.rates import Bucket, Buckets, PrefixBuckets
from milepost.vetting.repeats import in_rounds
from milepost.vetting.reports import Batch, Before, Outside, ReportLimits, are_outside, vet_reports
from milepost.vetting.reputation import Reputations, Scores

__all__ = [
    "Access",
    "Batch",
    "Before",
    "Bucket",
    "Buckets",
    "Check",
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
    "Who",
    "are_outside",
    "in_rounds",
    "vet_message",
    "vet_reports",
]
