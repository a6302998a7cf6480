"""Records of a site's log as lines: a summary, or the whole record in JSON."""

import json
from typing import assert_never

import orjson

from milepost.cli.message_output import shown_body, shown_text
from milepost.eventlog.log import Record
from milepost.model.reasons import Malformed
from milepost.model.sites import (
    Claim,
    ClaimNotice,
    EdgeInfo,
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
    return f"{instant_to_text(record.appended_at)}  {site} {record.offset}  {shown_text(_what(record))}"


def _what(record: Record) -> str:
    key = record.key.replace("\n", " ")
    if record.value is None:
        return f"removed  {key}"
    try:
        return _told(from_record(record.value), key)
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


def _told(value: SiteRecord, key: str) -> str:
    match value:
        case ForwardedMessage():
            return f"said by {value.sender} {value.number}  {_message(value)}"
        case Handover():
            what = f"{len(value.subscriptions)} subscriptions, {len(value.waiting)} waiting" if value.is_held else "nothing"
            return f"handover {value.sender} to {value.receiver}  {value.endpoint}  {what}"
        case HandoverPart():
            return f"rest {value.sender} to {value.receiver}  {value.endpoint}  {len(value.waiting)} waiting"
        case MissedMessages():
            return f"extra {value.sender} to {value.receiver}  {value.endpoint}  {len(value.messages)} said"
        case HandoverTaken():
            return f"taken {value.sender} to {value.receiver}  {value.endpoint}"
        case Claim():
            marks = "".join(mark for mark, is_so in ((" anew", value.anew), (" asks", value.asks)) if is_so)
            return f"claim {value.endpoint} at {value.edge} epoch {value.epoch}{marks}"
        case EndpointPositions():
            return f"places at {value.edge}  {len(value.places)} endpoints"
        case ClaimNotice():
            return f"claimed {value.claim.endpoint} by {value.claim.edge} epoch {value.claim.epoch}"
        case PriorEdge():
            return f"prior {value.endpoint} epoch {value.epoch}: {value.edge or 'nowhere'}"
        case PrepareHandover():
            return f"prepare for {value.endpoint} from {value.edge}  {len(value.subscriptions)} subscriptions"
        case Interest():
            return f"wanted at {value.edge}  {value.subscription.query}  ({key})"
        case EdgeInfo():
            return f"edge {value.edge}  {value.address or 'no address'}  {'area' if value.coverage else 'everywhere'}"
        case HubInfo():
            return f"centre {value.name} acts for {' '.join(value.sites) or 'nobody'}"
        case _:
            assert_never(value)


def _message(said: ForwardedMessage) -> str:
    message = said.message
    marks = "  (retained)" if said.is_retained else ""
    return f"{message.topic}  from {message.source}{marks}  {shown_body(message.body)}"
