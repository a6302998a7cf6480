"""Records of a site's log: values ↔ JSON, one object each, whose `type` says what it is.

Rules of this room:
- what has its default value is absent; instants and numbers that may need 64 bits are texts, edges are `SITE/EDGE`;
- messages, subscriptions and areas are in the form that `wire.json_form` has for everybody;
- whoever reads a log that others write to meets anything: every fault is `Malformed`, and costs that record alone.
"""

from collections.abc import Callable
from typing import Final

import orjson

from milepost.model.reasons import Malformed, Reason
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
from milepost.wire.json_form.reading import JsonObject, kind_of
from milepost.wire.records import handing, saying, whereabouts

_WRITERS: Final[dict[type, Callable[..., JsonObject]]] = {
    Said: saying.write_said,
    Wanted: saying.write_wanted,
    EdgeInfo: saying.write_edge,
    CentreInfo: saying.write_centre,
    Claim: whereabouts.write_claim,
    Claimed: whereabouts.write_claimed,
    Prior: whereabouts.write_prior,
    Places: whereabouts.write_places,
    Prepare: handing.write_prepare,
    Handover: handing.write_handover,
    Rest: handing.write_rest,
    Extra: handing.write_extra,
    Taken: handing.write_taken,
}

_READERS: Final[dict[str, Callable[[object], SiteRecord]]] = {
    "said": saying.read_said,
    "wanted": saying.read_wanted,
    "edge": saying.read_edge,
    "centre": saying.read_centre,
    "claim": whereabouts.read_claim,
    "claimed": whereabouts.read_claimed,
    "prior": whereabouts.read_prior,
    "places": whereabouts.read_places,
    "prepare": handing.read_prepare,
    "handover": handing.read_handover,
    "rest": handing.read_rest,
    "extra": handing.read_extra,
    "taken": handing.read_taken,
}


def to_record(value: SiteRecord) -> bytes:
    """The bytes that stand in the log."""
    try:
        return orjson.dumps(_WRITERS[type(value)](value))
    except orjson.JSONEncodeError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"JSON cannot hold it: {fault}") from None


def from_record(data: bytes) -> SiteRecord:
    """The value that stands in the log; raises nothing but `Malformed`."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault}") from None
    kind = kind_of(value, "record", _READERS)
    try:
        return _READERS[kind](value)
    except Malformed:
        raise
    except (ValueError, TypeError, IndexError) as fault:
        raise Malformed(Reason.FIELD_TYPE, f"{kind}: {fault}") from None
