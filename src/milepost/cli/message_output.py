"""Received messages as text lines, in a custom format, or as JSON."""

from collections.abc import Callable
from difflib import get_close_matches
from string import Formatter
from typing import Final

from milepost.client.messages import ReceivedMessage
from milepost.config.errors import UsageFault
from milepost.model.instants import SECOND_NS, Instant
from milepost.wire.area_text import place_to_text
from milepost.wire.json_form import to_json
from milepost.wire.times import instant_to_text

Show = Callable[[ReceivedMessage, Instant], str]

_HEX_BYTES_MAX: Final = 32


def as_json(message: ReceivedMessage, now: Instant) -> str:
    """Format a message as one line of JSON."""
    del now
    return to_json(message.message).decode()


def as_line(message: ReceivedMessage, now: Instant) -> str:
    """Format a message as a line: topic, available metadata, body."""
    found = fields_of(message, now)
    parts = [found["topic"]]
    parts += [f"[{found['tags']}]"] if message.tags else []
    parts += [found["place"]] if message.place is not None else []
    parts += [found["priority"]] if message.priority.name != "CONVENIENCE" else []
    parts += [found["age"]] if message.seen_at is not None else []
    parts += [f"from {found['source']}"] if message.source is not None else []
    parts += ["(retained)"] if message.is_retained else []
    return f"{'  '.join(parts)}  {found['body']}".rstrip()


def by_format(text: str) -> Show:
    """Return a formatter for a format such as `{topic} {body}`; raise a `UsageFault` for an unknown field."""
    known = fields_of(ReceivedMessage("", b"", Instant(0)), Instant(0))
    try:
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as fault:
        raise UsageFault(f"--format: {fault}; write a literal brace twice") from None
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {{{near[0]}}}?" if near else f"known fields: {', '.join(f'{{{one}}}' for one in known)}"
            raise UsageFault(f"--format: there is no field {{{name}}}; {hint}")
    return lambda message, now: text.format_map(fields_of(message, now))


def fields_of(message: ReceivedMessage, now: Instant) -> dict[str, str]:
    """Return the printable fields of a message, with control characters escaped."""
    return {
        "topic": shown_text(message.topic),
        "body": shown_body(message.body),
        "tags": " ".join(sorted(message.tags)),
        "place": "" if message.place is None else place_to_text(message.place),
        "source": shown_text(message.source or ""),
        "age": "" if message.seen_at is None else shown_age(now - message.seen_at),
        "seen_at": "" if message.seen_at is None else instant_to_text(message.seen_at),
        "received_at": instant_to_text(message.received_at),
        "priority": message.priority.name.lower(),
        "qos": str(message.qos),
        "retained": "retained" if message.is_retained else "",
        "signer": "" if message.signer is None else shown_text(str(message.signer)),
    }


def shown_body(body: bytes) -> str:
    """Return text as it is, other bytes in hexadecimal, shortened."""
    try:
        return shown_text(body.decode())
    except UnicodeDecodeError:
        more = "..." if len(body) > _HEX_BYTES_MAX else ""
        return f"<{len(body)} bytes: {body[:_HEX_BYTES_MAX].hex(' ')}{more}>"


def shown_text(text: str) -> str:
    """Escape characters that are not printable and could control the terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown_age(age_ns: int) -> str:
    """Format an age in a suitable unit."""
    seconds = age_ns / SECOND_NS
    if seconds < 0:
        return f"in {-seconds:.0f} s"
    for size_s, unit, digits in ((86_400, "d", 0), (3_600, "h", 0), (60, "min", 0), (1, "s", 1), (0.001, "ms", 0)):
        if seconds >= size_s:
            return f"{seconds / size_s:.{digits}f} {unit} ago"
    return "now"
