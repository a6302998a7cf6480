"""Announcing: a handler tells the edges of its site what it wants (D6), and takes back what it wants no longer.

It stays announced while no process of it runs: messages wait for it in the log. Only `forget` ends that.
"""

import threading
from typing import Final, NamedTuple

from milepost.backbone.log import Entry, Log
from milepost.handlers.handler import Handler
from milepost.handlers.ledger import Ledger
from milepost.handlers.names import COMPACTED, book_topic, parked_topic
from milepost.handlers.tables import read_table, write
from milepost.hub.handling import PARTS_MAX, edge_name_of
from milepost.model.endpoints import EndpointId
from milepost.model.queries import OnTopic
from milepost.model.sites import SUBSCRIPTION_INFO, EdgeRef, Wanted, publish_to, wanted_key
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

KEYS_AT_ONCE: Final = 500


class Forgotten(NamedTuple):
    """What was there of a handler."""

    filters: int
    values: int
    parked: int


def announce(log: Log, site: str, handler: Handler) -> None:
    """Say what the handler wants, and no longer what it wanted before; comes back when that is safe."""
    log.make(SUBSCRIPTION_INFO, COMPACTED)
    log.make(publish_to(handler.name))
    edge = EdgeRef(site, edge_name_of(handler.name))
    wanted = {_key(edge, route.filter): _wanted(edge, route.filter) for route in handler.routes}
    before = _announced(log, edge)
    entries = [Entry(SUBSCRIPTION_INFO, key, None) for key in before if key not in wanted]
    entries += [Entry(SUBSCRIPTION_INFO, key, value) for key, value in wanted.items() if before.get(key) != value]
    write(log, entries)


def forget(log: Log, site: str, handler: str) -> Forgotten:
    """Take back all that the handler wants, and drop its store and what it set aside; what waits for it is passed over."""
    edge = EdgeRef(site, edge_name_of(handler))
    wanted = _announced(log, edge)
    write(log, [Entry(SUBSCRIPTION_INFO, key, None) for key in wanted])
    topics = set(log.topics())
    values = sum(_empty(log, handler, part) for part in range(PARTS_MAX) if book_topic(handler, part) in topics)
    parked = read_table(log, parked_topic(handler))
    write(log, [Entry(parked_topic(handler), key, None) for key in parked])
    return Forgotten(len(wanted), values, len(parked))


def _empty(log: Log, handler: str, part: int) -> int:
    """Write into the book of a part that nothing is kept, and that all which waits is dealt with; how much was kept."""
    ledger = Ledger(log, handler, part, 0, threading.Event())
    try:
        ledger.claim()
        keys, topic = list(ledger.shelf.values), publish_to(handler)
        end = log.ends(topic)[1]
        for at in range(0, len(keys), KEYS_AT_ONCE):
            ledger.add(topic, end, dict.fromkeys(keys[at : at + KEYS_AT_ONCE]), [])
            ledger.commit()
        ledger.positions = {topic: end}
        ledger.commit()  # what is gone can be taken out now
        ledger.settle()
    finally:
        ledger.close()
    return len(keys)


def _announced(log: Log, edge: EdgeRef) -> dict[str, bytes]:
    beginning = _key(edge, "")
    return {key: value for key, value in read_table(log, SUBSCRIPTION_INFO).items() if key.startswith(beginning)}


def _key(edge: EdgeRef, topic_filter: str) -> str:
    return wanted_key(edge, edge.edge, topic_filter)


def _wanted(edge: EdgeRef, topic_filter: str) -> bytes:
    return to_record(Wanted(edge, Subscription(EndpointId(edge.edge), OnTopic(topic_filter))))
