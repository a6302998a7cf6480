"""What names may be written with: any script, but no control characters and no halves of a surrogate pair."""


def maybe_bad_character(text: str) -> int | None:
    """Where a text has a character that no name may have; nothing if it has none."""
    if text.isascii() and text.isprintable():
        return None
    for at, character in enumerate(text):
        if character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff":
            return at
    return None
