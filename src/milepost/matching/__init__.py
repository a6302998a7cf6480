"""Matching: the subscribers of a message, and the endpoints inside an area."""

from milepost.matching.matcher import NO_RECEIVERS, MatchedReceivers, Matcher, MatcherLimits

__all__ = ["NO_RECEIVERS", "MatchedReceivers", "Matcher", "MatcherLimits"]
