"""Keys and certificates as text: a title line, base64, an end line. Files of trust hold this.

-----BEGIN MILEPOST CERTIFICATE-----
base64, in lines
-----END MILEPOST CERTIFICATE-----
"""

from base64 import b64decode
from typing import Final

from milepost.model.reasons import Malformed, Reason

AUTHORITY: Final = "AUTHORITY PUBLIC KEY"
PRIVATE_KEY: Final = "PRIVATE KEY"
CERTIFICATE: Final = "CERTIFICATE"


def bytes_from_text(text: str, title: str) -> bytes:
    """What a text under this title holds."""
    lines = [line.strip() for line in text.strip().split("\n")]
    if lines[0] != f"-----BEGIN MILEPOST {title}-----" or lines[-1] != f"-----END MILEPOST {title}-----":
        raise Malformed(Reason.MALFORMED, f"no {title.lower()} of milepost trust: the first line says what a file holds")
    try:
        return b64decode("".join(lines[1:-1]), validate=True)
    except ValueError:
        raise Malformed(Reason.MALFORMED, f"the {title.lower()} is spoilt: copy it again from where it was made") from None
