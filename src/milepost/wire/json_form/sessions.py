"""Session and pub/sub messages in JSON: one object each, with the session token where there is one."""

from typing import Final, assert_never

from milepost.model.cells import Cells
from milepost.model.endpoints import EndpointId
from milepost.model.messages import MessageId
from milepost.model.reports import Report
from milepost.model.sessions import (
    Acknowledge,
    Close,
    CloseCause,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Name,
    Notify,
    Publish,
    Received,
    Refusal,
    ReportSent,
    SessionToken,
    Subscribe,
    SubscriptionName,
    Unsubscribe,
    check_session,
)
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_message, read_place, write_message, write_place
from milepost.wire.json_form.reading import JsonObject, Members, Reader
from milepost.wire.json_form.subscriptions import read_notice, read_subscription, write_notice, write_subscription
from milepost.wire.times import instant_to_text

REPORT_MEMBERS: Final = ("type", "endpoint", "place", "seen_at", "heading_deg", "speed_mps")
SESSION_MEMBERS: Final[dict[str, tuple[str, ...]]] = {
    "init": ("type", "report", "former", "hears_cells"),
    "acknowledge": ("type", "session", "reporting_interval_ns", "edge", "resumed", "reset", "keys_ns", "cells"),
    "report_sent": ("type", "session", "report"),
    "heartbeat": ("type", "session"),
    "close": ("type", "session", "cause"),
    "refusal": ("type", "session", "reason", "name", "detail", "about"),
    "publish": ("type", "session", "message", "matches"),
    "subscribe": ("type", "session", "subscription"),
    "unsubscribe": ("type", "session", "subscription"),
    "notify": ("type", "session", "notice"),
    "received": ("type", "session", "name"),
}
CELLS_MEMBERS: Final = ("group", "groups", "port", "side_deg")
NAME_MEMBERS: Final = {"message_name": ("type", "source", "id"), "subscription_name": ("type", "owner", "id")}
_NO_MATCHES: Final[tuple[SubscriptionId, ...]] = ()
CAUSES: Final = {cause.name.lower(): cause for cause in CloseCause}


def write_report(report: Report) -> JsonObject:
    """The report's members; an unknown heading or speed stays absent."""
    found: JsonObject = {
        "type": "report",
        "endpoint": report.endpoint,
        "place": write_place(report.place),
        "seen_at": instant_to_text(report.seen_at),
    }
    if report.heading_deg is not None:
        found["heading_deg"] = report.heading_deg
    if report.speed_mps is not None:
        found["speed_mps"] = report.speed_mps
    return found


def read_report(value: object, where: str) -> Report:
    """The report that an object describes."""
    members = Members(value, where, REPORT_MEMBERS, kind="report")
    return Report(
        endpoint=EndpointId(members.need("endpoint", reading.text)),
        place=members.need("place", read_place),
        seen_at=members.need("seen_at", reading.instant),
        heading_deg=members.maybe("heading_deg", reading.number, None),
        speed_mps=members.maybe("speed_mps", reading.number, None),
    )


def write_datagram(value: Datagram) -> JsonObject:
    """The members of a session or pub/sub message."""
    match value:
        case Init():
            return _write_init(value)
        case Acknowledge():
            return _headed("acknowledge", value.session) | _write_acknowledge(value)
        case ReportSent():
            return _headed("report_sent", value.session) | {"report": write_report(value.report)}
        case Heartbeat():
            return _headed("heartbeat", value.session)
        case Close():
            return _headed("close", value.session) | {"cause": value.cause.name.lower()}
        case Refusal():
            return _headed("refusal", value.session) | _write_refusal(value)
        case Publish():
            matches: JsonObject = {"matches": list(value.matches)} if value.matches else {}
            return _headed("publish", value.session) | {"message": write_message(value.message)} | matches
        case Subscribe():
            return _headed("subscribe", value.session) | {"subscription": write_subscription(value.subscription)}
        case Unsubscribe():
            return _headed("unsubscribe", value.session) | {"subscription": _write_name(value.subscription)}
        case Notify():
            return _headed("notify", value.session) | {"notice": write_notice(value.notice)}
        case Received():
            return _headed("received", value.session) | {"name": _write_name(value.name)}
        case _:
            assert_never(value)


def _headed(kind: str, session: SessionToken | None) -> JsonObject:
    return {"type": kind} if session is None else {"type": kind, "session": str(session)}


def _write_init(value: Init) -> JsonObject:
    found: JsonObject = {"type": "init", "report": write_report(value.report)}
    if value.former is not None:
        found["former"] = str(value.former)
    if value.hears_cells:
        found["hears_cells"] = True
    return found


def _write_acknowledge(value: Acknowledge) -> JsonObject:
    found: JsonObject = {"reporting_interval_ns": value.reporting_interval_ns, "edge": value.edge}
    if value.is_resumed:
        found["resumed"] = True
    if value.reset:
        found["reset"] = reading.spell_octets(value.reset)
    if value.keys_ns is not None:
        found["keys_ns"] = value.keys_ns
    if (cells := value.cells) is not None:
        found["cells"] = {"group": cells.group, "groups": cells.groups, "port": cells.port, "side_deg": cells.side_deg}
    return found


def _write_refusal(value: Refusal) -> JsonObject:
    found: JsonObject = {"reason": value.reason, "name": value.name}
    if value.detail:
        found["detail"] = value.detail
    if value.about is not None:
        found["about"] = _write_name(value.about)
    return found


def _write_name(name: Name) -> JsonObject:
    match name:
        case MessageName():
            return {"type": "message_name", "source": name.source, "id": str(name.id)}
        case SubscriptionName():
            return {"type": "subscription_name", "owner": name.owner, "id": name.id}
        case _:
            assert_never(name)


def _members(value: object, where: str, kind: str) -> Members:
    return Members(value, where, SESSION_MEMBERS[kind], kind=kind)


def _read_session(value: object, where: str) -> SessionToken:
    token = reading.digits(value, where)
    check_session(token)
    return SessionToken(token)


def _session(members: Members) -> SessionToken:
    return members.need("session", _read_session)


def _maybe_session(members: Members) -> SessionToken | None:
    return members.maybe("session", _read_session, None)


def _read_init(value: object, where: str) -> Init:
    members = _members(value, where, "init")
    former = members.maybe("former", _read_session, None)
    return Init(members.need("report", read_report), former, members.maybe("hears_cells", reading.truth, False))


def _read_acknowledge(value: object, where: str) -> Acknowledge:
    members = _members(value, where, "acknowledge")
    interval_ns = members.need("reporting_interval_ns", reading.integer)
    return Acknowledge(
        _session(members),
        interval_ns,
        EndpointId(members.need("edge", reading.text)),
        members.maybe("resumed", reading.truth, False),
        members.maybe("reset", reading.octets, b""),
        members.maybe("keys_ns", reading.integer, None),
        members.maybe("cells", _read_cells, None),
    )


def _read_cells(value: object, where: str) -> Cells:
    members = Members(value, where, CELLS_MEMBERS)
    return Cells(
        members.need("group", reading.text),
        members.need("groups", reading.integer),
        members.need("port", reading.integer),
        members.need("side_deg", reading.number),
    )


def _read_report_sent(value: object, where: str) -> ReportSent:
    members = _members(value, where, "report_sent")
    return ReportSent(_session(members), members.need("report", read_report))


def _read_heartbeat(value: object, where: str) -> Heartbeat:
    return Heartbeat(_session(_members(value, where, "heartbeat")))


def _read_close(value: object, where: str) -> Close:
    members = _members(value, where, "close")
    return Close(_session(members), members.need("cause", _read_cause))


def _read_cause(value: object, where: str) -> CloseCause:
    return CAUSES[reading.choice(reading.text(value, where), where, CAUSES)]


def read_refusal(value: object, where: str) -> Refusal:
    """The refusal that an object describes."""
    members = _members(value, where, "refusal")
    return Refusal(
        reason=members.need("reason", reading.integer),
        name=members.need("name", reading.text),
        detail=members.maybe("detail", reading.text, ""),
        about=members.maybe("about", _read_name, None),
        session=_maybe_session(members),
    )


def _read_publish(value: object, where: str) -> Publish:
    members = _members(value, where, "publish")
    matches = members.maybe("matches", _read_matches, _NO_MATCHES)
    return Publish(members.need("message", read_message), _maybe_session(members), matches)


def _read_matches(value: object, where: str) -> tuple[SubscriptionId, ...]:
    return tuple(map(SubscriptionId, reading.integers(value, where)))


def _read_subscribe(value: object, where: str) -> Subscribe:
    members = _members(value, where, "subscribe")
    return Subscribe(members.need("subscription", read_subscription), _maybe_session(members))


def _read_unsubscribe(value: object, where: str) -> Unsubscribe:
    members = _members(value, where, "unsubscribe")
    return Unsubscribe(members.need("subscription", _read_subscription_name), _maybe_session(members))


def _read_notify(value: object, where: str) -> Notify:
    members = _members(value, where, "notify")
    return Notify(members.need("notice", read_notice), _maybe_session(members))


def _read_received(value: object, where: str) -> Received:
    members = _members(value, where, "received")
    return Received(members.need("name", _read_name), _maybe_session(members))


def _read_name(value: object, where: str) -> Name:
    kind = reading.kind_of(value, where, NAME_MEMBERS)
    return _read_message_name(value, where) if kind == "message_name" else _read_subscription_name(value, where)


def _read_message_name(value: object, where: str) -> MessageName:
    members = Members(value, where, NAME_MEMBERS["message_name"], kind="message_name")
    return MessageName(EndpointId(members.need("source", reading.text)), MessageId(members.need("id", reading.digits)))


def _read_subscription_name(value: object, where: str) -> SubscriptionName:
    members = Members(value, where, NAME_MEMBERS["subscription_name"], kind="subscription_name")
    return SubscriptionName(EndpointId(members.need("owner", reading.text)), SubscriptionId(members.need("id", reading.integer)))


READERS: Final[dict[str, Reader[Datagram]]] = {
    "init": _read_init,
    "acknowledge": _read_acknowledge,
    "report_sent": _read_report_sent,
    "heartbeat": _read_heartbeat,
    "close": _read_close,
    "refusal": read_refusal,
    "publish": _read_publish,
    "subscribe": _read_subscribe,
    "unsubscribe": _read_unsubscribe,
    "notify": _read_notify,
    "received": _read_received,
}
