"""Reputation: a score per endpoint, computed outside, that determines its share of the rate limits (M27)."""

from collections.abc import Mapping
from typing import Final, Self

import orjson

from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.reasons import Malformed, Reason, shown
from milepost.wire.records import reputation_from_record

SCORES_MAX: Final = 1_000_000
SCORES_BYTES_MAX: Final = 200_000_000
"""Room for that many of the longest ids."""

_FULL_SCORE: Final = 1.0

SHARE_MIN: Final = 0.01
"""Minimum share: an endpoint that could send nothing could never improve its score."""


class Scores:
    """Scores read from a log, one by one; the last one of an endpoint counts."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[EndpointId, float] = {}
        """Scores below 1."""

    def take(self, key: str, value: bytes | None) -> EndpointId:
        """Apply a record, or its deletion; return the endpoint, and raise nothing but `Malformed`."""
        if value is None:
            endpoint, score = endpoint_id(key), _FULL_SCORE
        else:
            record = reputation_from_record(value)
            endpoint, score = record.endpoint, record.score
        if endpoint != key:
            raise Malformed(Reason.FIELD_RANGE, f"the score of {shown(endpoint)} has the record key {shown(key)}")
        if score == _FULL_SCORE:
            self.known.pop(endpoint, None)
        elif endpoint in self.known or len(self.known) < SCORES_MAX:
            self.known[endpoint] = score
        else:
            raise Malformed(Reason.TOO_MANY_FIELDS, f"there are {SCORES_MAX} scores already")
        return endpoint


class Reputations:
    """Scores from 0 (not trusted) to 1, by endpoint; the default is 1."""

    __slots__ = ("_scores",)

    def __init__(self, scores: Mapping[EndpointId, float] | None = None) -> None:
        self._scores = {} if scores is None else scores

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Read scores from JSON: an object with a number from 0 to 1 for each endpoint."""
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
        """Return the endpoint's share of rate and burst, for `Buckets.take`."""
        return max(SHARE_MIN, self._scores.get(endpoint, 1.0))
