"""A dead letter.

    {"type": "dead-letter", "pipeline": "letters", "topic": "reports", "offset": 17, "fault": "its type is not reports",
     "value": "…"}

Its key is TOPIC/OFFSET, so that one which is told again is known.
"""

from typing import Final

LETTERS_TOPIC: Final = "dead-letters"
VALUE_CHARACTERS_MAX: Final = 1_000
"""So much of what could not be read is kept."""
