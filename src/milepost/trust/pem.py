"""Keys and certificates as text, the format of trust files: a title line, base64, an end line.

-----BEGIN MILEPOST CERTIFICATE-----
base64, in lines
-----END MILEPOST CERTIFICATE-----
"""

from base64 import b64decode, b64encode
from typing import Final

from milepost.model.reasons import Malformed, Reason

AUTHORITY: Final = "AUTHORITY PUBLIC KEY"
PRIVATE_KEY: Final = "PRIVATE KEY"
CERTIFICATE: Final = "CERTIFICATE"
SITE_KEY: Final = "SITE KEY"

_BEGIN: Final = "-----BEGIN MILEPOST "
_END: Final = "-----END MILEPOST "
_RULE: Final = "-----"
_LINE: Final = 64


def text_from_bytes(title: str, data: bytes) -> str:
    """Encode bytes as text."""
    text = b64encode(data).decode()
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return "\n".join([f"{_BEGIN}{title}{_RULE}", *lines, f"{_END}{title}{_RULE}", ""])


def title_of(text: str) -> str:
    """Return the title of a text; empty if it has none."""
    first = text.strip().partition("\n")[0].strip()
    is_title = first.startswith(_BEGIN) and first.endswith(_RULE)
    return first.removeprefix(_BEGIN).removesuffix(_RULE) if is_title else ""


def bytes_from_text(text: str, title: str) -> bytes:
    """Decode a text that must have this title."""
    if title_of(text) != title:
        raise Malformed(Reason.MALFORMED, f"not a {title.lower()} of milepost trust: the first line names the content of a file")
    lines = [line.strip() for line in text.strip().split("\n")]
    damaged = Malformed(Reason.MALFORMED, f"the {title.lower()} is truncated or damaged: copy it again from the original")
    if lines[-1] != f"{_END}{title}{_RULE}":
        raise damaged
    try:
        return b64decode("".join(lines[1:-1]), validate=True)
    except ValueError:
        raise damaged from None
