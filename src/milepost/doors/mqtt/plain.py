"""The short way: PUBLISH of quality 0 or 1 to a topic that is known, and PUBACK, which are nearly all there is.

At quality 0 such a PUBLISH is not taken apart: a run remembers its bytes and who gets them. `publishing.on_publish` and
`publishing.on_acknowledge` are what these packets would otherwise go through, and do whatever is not usual about them; a property
test holds the two ways equal.
"""

from typing import Final

from milepost.doors.mqtt.desk import Desk
from milepost.doors.mqtt.link import DIALECT_V3, DIALECT_V5, MqttLink
from milepost.doors.mqtt.routes import Route
from milepost.edge.actions import Run
from milepost.edge.corridor import Corridor
from milepost.edge.parcels import Parcel
from milepost.edge.sessions import Session
from milepost.model.instants import Instant
from milepost.wire.mqtt import Version

_NUMBERED: Final = 0x32
_USUAL: Final = bytes((0x30, _NUMBERED))
"""PUBLISH of quality 0 and 1, neither retained nor repeated."""

_SMALLEST: Final = 5
"""A shorter rest holds no such packet."""

PUBACK: Final = 0x40
_PUBACK_BODY, _PUBACK_BYTES = 2, 4
"""PUBACK in its usual form: nothing but a number."""

_TAKEN, _TAKEN_BY_NOBODY, _NOBODY = b"\x40\x02", b"\x40\x03", b"\x10"


def take_plain(desk: Desk, link: MqttLink, session: Session, data: bytes, at: int, now: Instant) -> int:
    """Take the packets from `at` on as long as they are of this kind; gives where the first other one begins."""
    corridor = desk.corridor
    if link.routes is None or (corridor.matcher.has_areas and corridor.watch.tracks.is_known(session.number)):
        return at
    routes, epoch, size, size_max = link.routes.by_topic, corridor.planner.epoch, len(data), desk.settings.packet_bytes_max
    is_v5 = link.version is Version.V5
    run = _last_run(corridor, is_v5=is_v5)
    while size - at >= _SMALLEST and data[at] in _USUAL:
        start, length = at + 2, data[at + 1]
        if length > 0x7F:  # the second byte of the length; longer ones take the long way
            if not 0 < data[start] <= 0x7F:
                break
            length += (data[start] << 7) - 0x80
            start += 1
        end = start + length
        if end > size or end - at > size_max or length < 2:
            break
        topic_end = start + 2 + (data[start] << 8 | data[start + 1])
        route = routes.get(data[start:topic_end])
        if route is None or route.fan is None or route.epoch != epoch:
            break
        is_numbered = data[at] == _NUMBERED
        body = topic_end + is_v5 + 2 * is_numbered
        if body > end or (is_v5 and data[body - 1]):  # cut short, or with properties
            break
        if route.check is not None and route.check(data[body:end]) is not None:
            break
        if is_numbered:
            if not _take_numbered(desk, link, session, route, data[topic_end : topic_end + 2], data[body:end], now):
                break
            run = None
        else:
            if run is None or run.fan is not route.fan or run.priority is not route.priority:
                run = Run(route.fan, DIALECT_V5 if is_v5 else DIALECT_V3, route.priority)
                corridor.deliveries.actions.append(run)
            run.packets.append(data[at:end])
            run.origins.append(session)
        link.owed_messages += 1
        at = end
    return at


def _last_run(corridor: Corridor, *, is_v5: bool) -> Run | None:
    """The run that messages of a dialect may still be added to: nothing came after it."""
    actions = corridor.deliveries.actions
    last = actions[-1] if actions else None
    return last if isinstance(last, Run) and last.dialect == (DIALECT_V5 if is_v5 else DIALECT_V3) else None


def _take_numbered(desk: Desk, link: MqttLink, session: Session, route: Route, number: bytes, body: bytes, now: Instant) -> bool:
    """Publish at quality 1 and confirm; tells whether there was nothing unusual about it."""
    is_v5 = link.version is Version.V5
    is_over = is_v5 and link.open_in + len(session.received or ()) >= desk.settings.receive_max
    if is_over or number == b"\0\0" or desk.corridor.trouble is not None:
        return False
    link.open_in += 1
    link.has_promised = True
    parcel = Parcel(route.topic, body, now, source=session.name, origin=session.number, qos=1, priority=route.priority)
    parcel.place = desk.corridor.place_of(session)
    takers = desk.corridor.publish(parcel, now, route.plan)
    desk.sender.put(link, _TAKEN + number if takers or not is_v5 else _TAKEN_BY_NOBODY + number + _NOBODY)
    return True


def take_acknowledged(corridor: Corridor, session: Session, data: bytes, at: int) -> int:
    """Take the PUBACKs from `at` on, as long as they are of the usual form; gives where the first other packet begins."""
    in_flight, deliveries, is_told = session.in_flight, corridor.deliveries, session.is_kept or session.is_heeded
    last = len(data) - _PUBACK_BYTES
    while at <= last and data[at] == PUBACK and data[at + 1] == _PUBACK_BODY:
        number = data[at + 2] << 8 | data[at + 3]
        if is_told or number not in in_flight:
            if not number:  # [MQTT-2.2.1-3]: the long way says so
                break
            deliveries.acknowledge(session, number)
        else:
            del in_flight[number]
        at += _PUBACK_BYTES
    return at
