"""Reputation: how far each endpoint is believed, as a score from outside, and what share of the rate it therefore has (M27)."""

from collections.abc import Mapping
from typing import Final, Self

import orjson

from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.reasons import Malformed, Reason, shown
from milepost.wire.records.telling import reputation_from_record

SCORES_MAX: Final = 1_000_000
SCORES_BYTES_MAX: Final = 200_000_000
"""Room for as many of the longest ids."""

_FULLY: Final = 1.0

SHARE_MIN: Final = 0.01
"""So much everybody has: who could send nothing at all could never show to have become better."""


class Scores:
    """Scores as a log tells them, one by one; of one endpoint the last counts."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[EndpointId, float] = {}
        """Of those who are believed less than others."""

    def take(self, key: str, value: bytes | None) -> EndpointId:
        """A record, or that there is none any more; gives whose score it is, and raises nothing but `Malformed`."""
        if value is None:
            endpoint, score = endpoint_id(key), _FULLY
        else:
            told = reputation_from_record(value)
            endpoint, score = told.endpoint, told.score
        if endpoint != key:
            raise Malformed(Reason.FIELD_RANGE, f"the score of {shown(endpoint)} stands under {shown(key)}")
        if score == _FULLY:
            self.known.pop(endpoint, None)
        elif endpoint in self.known or len(self.known) < SCORES_MAX:
            self.known[endpoint] = score
        else:
            raise Malformed(Reason.TOO_MANY_FIELDS, f"{SCORES_MAX} scores are known")
        return endpoint


class Reputations:
    """Scores from 0 (not believed) to 1, by endpoint; whoever has none is believed."""

    __slots__ = ("_scores",)

    def __init__(self, scores: Mapping[EndpointId, float] | None = None) -> None:
        self._scores = {} if scores is None else scores

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Scores from JSON: an object with a number from 0 to 1 for each endpoint."""
        if len(content) > SCORES_BYTES_MAX:
            raise Malformed(Reason.MESSAGE_TOO_LARGE, f"the scores have {len(content)} bytes, {SCORES_BYTES_MAX} are allowed")
        try:
            scores = orjson.loads(content)
        except orjson.JSONDecodeError as fault:
            raise Malformed(Reason.MALFORMED, f"the scores are not JSON: {fault.msg} at {fault.pos}") from None
        if not isinstance(scores, dict):
            raise Malformed(Reason.FIELD_TYPE, f"the scores are {shown(scores)}, not an object of endpoints and numbers")
        if len(scores) > SCORES_MAX:
            raise Malformed(Reason.TOO_MANY_FIELDS, f"{len(scores)} scores, {SCORES_MAX} are allowed")
        for endpoint, score in scores.items():
            if type(score) is not float and type(score) is not int:
                raise Malformed(Reason.FIELD_TYPE, f"the score of {shown(endpoint)} is {shown(score)}, not a number")
            if not 0 <= score <= 1:
                raise Malformed(Reason.FIELD_RANGE, f"the score of {shown(endpoint)} is {shown(score)}, not in 0..1")
        return cls(scores)

    def __len__(self) -> int:
        return len(self._scores)

    def share_of(self, endpoint: EndpointId) -> float:
        """What part of rate and burst the endpoint has, for `Buckets.take`."""
        return max(SHARE_MIN, self._scores.get(endpoint, 1.0))
