"""Matching: who wants this message, who is inside this area."""

from milepost.matching.matcher import Limits, Matcher
from milepost.matching.takers import NOBODY, Takers

__all__ = ["NOBODY", "Limits", "Matcher", "Takers"]
