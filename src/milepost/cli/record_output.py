"""Records of a site's log as lines: a summary, or the whole record in JSON."""

import json
from typing import assert_never

import orjson

from milepost.cli.message_output import shown_body, shown_text
from milepost.eventlog.log import Record
from milepost.model.reasons import Malformed
from milepost.model.site_records import (
    ClaimNotice,
    EdgeInfo,
    EndpointClaim,
    EndpointPositions,
    ForwardedMessage,
    Handover,
    HandoverPart,
    HandoverTaken,
    HubInfo,
    Interest,
    MissedMessages,
    PrepareHandover,
    PriorEdge,
    SiteRecord,
)
from milepost.wire.records import from_record
from milepost.wire.times import instant_to_text


def as_json(site: str, record: Record) -> str:
    """Format a record as one line of JSON; a value that is not JSON becomes text."""
    found: dict[str, object] = {
        "site": site,
        "topic": record.topic,
        "offset": record.offset,
        "appended_at": instant_to_text(record.appended_at),
        "key": record.key,
        "value": None,
    }
    if record.value is None:
        return json.dumps(found)
    try:
        return json.dumps(found | {"value": orjson.loads(record.value)})
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return json.dumps(found | {"value": record.value.decode(errors="backslashreplace")})


def as_line(site: str, record: Record) -> str:
    """Format a record as a line: time, site, offset and a summary."""
    return f"{instant_to_text(record.appended_at)}  {site} {record.offset}  {shown_text(_summary(record))}"


def _summary(record: Record) -> str:
    key = record.key.replace("\n", " ")
    if record.value is None:
        return f"removed  {key}"
    try:
        return _site_record(from_record(record.value), key)
    except Malformed:
        return _maybe_members(record.value) or f"?  {key}  {shown_body(record.value)}"


def _maybe_members(value: bytes) -> str | None:
    """Summarize any other JSON object with a type, as pipelines write them: its members, and the lengths of its lists."""
    try:
        found = orjson.loads(value)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(kind := found.pop("type", None), str):
        return None
    lists = [f"{len(member)} {name}" for name, member in found.items() if isinstance(member, list)]
    others = [f"{name} {member}" for name, member in found.items() if not isinstance(member, list | dict)]
    return "  ".join([kind, *others, *lists])


def _site_record(value: SiteRecord, key: str) -> str:
    match value:
        case ForwardedMessage():
            return f"message {value.sender} {value.number}  {_message(value)}"
        case Handover():
            session = (
                f"{len(value.subscriptions)} subscriptions, {len(value.queued)} queued" if value.has_session else "no session"
            )
            return f"handover {value.sender} to {value.receiver}  {value.endpoint}  {session}"
        case HandoverPart():
            return f"handover part {value.sender} to {value.receiver}  {value.endpoint}  {len(value.queued)} queued"
        case MissedMessages():
            return f"missed messages {value.sender} to {value.receiver}  {value.endpoint}  {len(value.messages)} messages"
        case HandoverTaken():
            return f"handover taken {value.sender} to {value.receiver}  {value.endpoint}"
        case EndpointClaim():
            is_new, asks = (
                " new session" if value.clean_start_epoch else "",
                " asks for prior edge" if value.asks_prior_edge else "",
            )
            return f"claim {value.endpoint} at {value.edge} epoch {value.epoch}{is_new}{asks}"
        case EndpointPositions():
            return f"positions at {value.edge}  {len(value.positions)} endpoints"
        case ClaimNotice():
            return f"claim notice {value.claim.endpoint} by {value.claim.edge} epoch {value.claim.epoch}"
        case PriorEdge():
            return f"prior edge {value.endpoint} epoch {value.epoch}: {value.edge or 'none'}"
        case PrepareHandover():
            return f"prepare handover {value.endpoint} from {value.edge}  {len(value.subscriptions)} subscriptions"
        case Interest():
            return f"interest {value.edge}  {value.subscription.query}  ({key})"
        case EdgeInfo():
            return f"edge {value.edge}  {value.address or 'no address'}  {'area' if value.coverage else 'everywhere'}"
        case HubInfo():
            return f"hub {value.name} serves {' '.join(value.sites) or 'no site'}"
        case _:
            assert_never(value)


def _message(forwarded: ForwardedMessage) -> str:
    message = forwarded.message
    retained = "  (retained)" if forwarded.is_retained else ""
    return f"{message.topic}  from {message.source}{retained}  {shown_body(message.body)}"
