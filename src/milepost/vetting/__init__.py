"""Vetting: whether something is let in. Who may use which topics, how fast, and what a payload must be.

Verdicts are values: None lets it in, `Refused` says with number and detail why not. The rules are plain dataclasses that the
configuration fills; no file is read and no clock is asked here.
"""

from milepost.vetting.access import Access, Rule, Verbs, Who
from milepost.vetting.payloads import Check, PayloadRule, Payloads
from milepost.vetting.rates import Bucket

__all__ = ["Access", "Bucket", "Check", "PayloadRule", "Payloads", "Rule", "Verbs", "Who"]
