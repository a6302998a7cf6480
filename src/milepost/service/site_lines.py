"""Records of a site's log as lines: for people, or as they are, in JSON."""

import json
from typing import assert_never

import orjson

from milepost.backbone.log import Record
from milepost.model.reasons import Malformed
from milepost.model.sites import (
    CentreInfo,
    Claim,
    Claimed,
    EdgeInfo,
    Extra,
    Handover,
    Places,
    Prepare,
    Prior,
    Rest,
    Said,
    SiteRecord,
    Taken,
    Wanted,
)
from milepost.service.messages_out import shown_body, shown_text
from milepost.wire.records import from_record
from milepost.wire.times import instant_to_text


def as_json(site: str, record: Record) -> str:
    """The record in one line of JSON; a value that is no JSON as text."""
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
    except (ValueError, RecursionError):  # no JSON, or nested deeper than anybody means
        return json.dumps(found | {"value": record.value.decode(errors="backslashreplace")})


def as_line(site: str, record: Record) -> str:
    """For people: when, where in the log, and what."""
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
    """Any other object with a type, as pipelines write them: member by member, of lists how long they are."""
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
        case Said():
            return f"said by {value.sender} {value.number}  {_message(value)}"
        case Handover():
            what = f"{len(value.subscriptions)} subscriptions, {len(value.waiting)} waiting" if value.is_held else "nothing"
            return f"handover {value.sender} to {value.receiver}  {value.endpoint}  {what}"
        case Rest():
            return f"rest {value.sender} to {value.receiver}  {value.endpoint}  {len(value.waiting)} waiting"
        case Extra():
            return f"extra {value.sender} to {value.receiver}  {value.endpoint}  {len(value.said)} said"
        case Taken():
            return f"taken {value.sender} to {value.receiver}  {value.endpoint}"
        case Claim():
            marks = "".join(mark for mark, is_so in ((" anew", value.anew), (" asks", value.asks)) if is_so)
            return f"claim {value.endpoint} at {value.edge} epoch {value.epoch}{marks}"
        case Places():
            return f"places at {value.edge}  {len(value.places)} endpoints"
        case Claimed():
            return f"claimed {value.claim.endpoint} by {value.claim.edge} epoch {value.claim.epoch}"
        case Prior():
            return f"prior {value.endpoint} epoch {value.epoch}: {value.edge or 'nowhere'}"
        case Prepare():
            return f"prepare for {value.endpoint} from {value.edge}  {len(value.subscriptions)} subscriptions"
        case Wanted():
            return f"wanted at {value.edge}  {value.subscription.query}  ({key})"
        case EdgeInfo():
            return f"edge {value.edge}  {value.address or 'no address'}  {'area' if value.coverage else 'everywhere'}"
        case CentreInfo():
            return f"centre {value.name} acts for {' '.join(value.sites) or 'nobody'}"
        case _:
            assert_never(value)


def _message(said: Said) -> str:
    message = said.message
    marks = "  (retained)" if said.is_retained else ""
    return f"{message.topic}  from {message.source}{marks}  {shown_body(message.body)}"
