"""The columns of a lookback; `frame` is the number of the question.

messages of the archive ─▶ FOUND_ROW ─▶ ANSWER_ROW: a batch for each question
reports of the archive  ─▶ WHO_ROW
"""

from typing import Final

_MESSAGE: Final = """
    seen_at_us bigint, offset bigint, source string, id string, topic string, tags array<string>,
    latitude double, longitude double
"""

FOUND_ROW: Final = f"frame int, {_MESSAGE}"
"""A message that answers a question."""

ANSWER_ROW: Final = f"frame int, found bigint, left bigint, {_MESSAGE}"
"""One of the batch that was asked for; how many messages answer the question in all, and how many come after this one."""

WHO_ROW: Final = "frame int, endpoint string, first_us bigint, last_us bigint, reports bigint"
"""An endpoint that was in an area: from when to when, and how many of its reports say so."""
