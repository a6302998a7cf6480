"""Matching: the subscribers of a message, and the endpoints inside an area."""

from milepost.matching.matcher import NOBODY, Limits, Matcher, Takers

__all__ = ["NOBODY", "Limits", "Matcher", "Takers"]
