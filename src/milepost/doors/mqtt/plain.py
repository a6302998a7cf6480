"""The short way: PUBLISH of quality 0 to a topic that is known, and PUBACK, which are nearly all there is.

Such a PUBLISH is not taken apart: a run remembers its bytes and who gets them. `publishing.on_publish` and
`publishing.on_acknowledge` are what these packets would otherwise go through; a property test holds the two ways equal.
"""

from typing import Final

from milepost.doors.mqtt.link import DIALECT_V3, DIALECT_V5, MqttLink
from milepost.edge.actions import Run
from milepost.edge.corridor import Corridor
from milepost.edge.sessions import Session
from milepost.wire.mqtt import Version

_PLAIN_PUBLISH: Final = 0x30
"""Quality 0, neither retained nor repeated."""

_SMALLEST: Final = 5
"""A shorter rest holds no such packet."""

PUBACK: Final = b"\x40"
_PUBACK, _PUBACK_BODY, _PUBACK_BYTES = PUBACK[0], 2, 4
"""PUBACK in its usual form: nothing but a number."""


def take_plain(corridor: Corridor, link: MqttLink, session: Session, data: bytes, at: int, size_max: int) -> int:
    """Put the packets from `at` on into runs as long as they are of this kind; gives where the first other one begins."""
    if link.routes is None or (session.place is not None and corridor.matcher.has_areas):
        return at
    routes, epoch, size = link.routes.by_topic, corridor.planner.epoch, len(data)
    actions = corridor.deliveries.actions
    is_v5 = link.version is Version.V5
    dialect = DIALECT_V5 if is_v5 else DIALECT_V3
    last = actions[-1] if actions else None
    run = last if isinstance(last, Run) and last.dialect == dialect else None
    while size - at >= _SMALLEST and data[at] == _PLAIN_PUBLISH:
        start, length = at + 2, data[at + 1]
        if length > 0x7F:  # the second byte of the length; longer ones take the long way
            if not 0 < data[start] <= 0x7F:
                break
            length += (data[start] << 7) - 0x80
            start += 1
        end = start + length
        if end > size or end - at > size_max:
            break
        topic_end = start + 2 + (data[start] << 8 | data[start + 1])
        route = routes.get(data[start:topic_end])
        if route is None or route.fan is None or route.epoch != epoch:
            break
        body = topic_end + is_v5
        if body > end or (is_v5 and data[topic_end]):  # cut short, or with properties
            break
        if route.check is not None and route.check(data[body:end]) is not None:
            break
        if run is None or run.fan is not route.fan or run.priority is not route.priority:
            run = Run(route.fan, dialect, route.priority)
            actions.append(run)
        run.packets.append(data[at:end])
        run.origins.append(session)
        link.owed_messages += 1
        at = end
    return at


def take_acknowledged(corridor: Corridor, session: Session, data: bytes, at: int) -> int:
    """Take the PUBACKs from `at` on, as long as they are of the usual form; gives where the first other packet begins."""
    in_flight, deliveries = session.in_flight, corridor.deliveries
    last = len(data) - _PUBACK_BYTES
    while at <= last and data[at] == _PUBACK and data[at + 1] == _PUBACK_BODY:
        number = data[at + 2] << 8 | data[at + 3]
        if session.is_kept or number not in in_flight:
            if not number:  # [MQTT-2.2.1-3]: the long way says so
                break
            deliveries.acknowledge(session, number)
        else:
            del in_flight[number]
        at += _PUBACK_BYTES
    return at
