"""Subscriptions as the server is to have them, over as many connections and sessions as it takes.

    stage      when                                   next
    WANTED     not asked for over this connection     it is sent ─▶ ASKED
    ASKED      SUBSCRIBE was sent                     SUBACK yes ─▶ GRANTED, no ─▶ gone         connection lost ─▶ WANTED
    GRANTED    messages come                          the server forgot the session ─▶ WANTED
    UNWANTED   not to be had any more                 it is sent ─▶ LEAVING                      the server forgot ─▶ gone
    LEAVING    UNSUBSCRIBE was sent                   UNSUBACK ─▶ gone                           connection lost ─▶ UNWANTED

MQTT has one subscription for each filter. A second one for the same filter is asked for as JSON on `$milepost/subscribe`, which
goes through `Outbound` and is sent again by it; an edge of ours tells them apart by their labels.

The label (subscription identifier) is made from what is asked for, so that a client that was restarted under its name gets what
waited for it into the right inbox.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final
from zlib import crc32

from milepost.client.faults import RefusedByEdge
from milepost.client.mqtt.events import Done, WishRefused
from milepost.client.mqtt.numbers import Numbers
from milepost.client.mqtt.outbound import Outbound
from milepost.client.mqtt.refusals import refused_by
from milepost.client.mqtt.words import subscribe_properties, subscription_json, unsubscription_json, whole_filter
from milepost.client.values import Wish
from milepost.model.endpoints import EndpointId
from milepost.model.reasons import Reason
from milepost.model.topics import filter_matches
from milepost.wire.asks import SERVICE_PREFIX
from milepost.wire.asks.services import Service
from milepost.wire.mqtt import Code, Packet, Publish, Request, Suback, Subscribe, Unsuback, Unsubscribe

LABEL_MAX: Final = 268_435_455
WISHES_MAX: Final = 1_000
"""The most subscriptions of one client."""


class Stage(Enum):
    """How far a subscription is."""

    WANTED = 0
    ASKED = 1
    GRANTED = 2
    UNWANTED = 3
    LEAVING = 4


@dataclass(slots=True, eq=False)
class Asked:
    """One subscription."""

    label: int
    wish: Wish
    is_by_service: bool
    ticket: int | None
    """Who waits for the answer; nobody if it was granted before."""
    stage: Stage = Stage.WANTED
    is_first: bool = True
    number: int | None = None


class Wishes:
    """All subscriptions of a client."""

    def __init__(self, owner: EndpointId, numbers: Numbers, outbound: Outbound) -> None:
        self._owner = owner
        self._numbers = numbers
        self._outbound = outbound
        self._asked: dict[int, Asked] = {}
        self._by_number: dict[int, Asked] = {}
        self._by_service_ticket: dict[int, Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def label_for(self, wish: Wish) -> int:
        """A label made from what is asked for, or the next one that is free."""
        if len(self._asked) >= WISHES_MAX:
            raise RefusedByEdge.of(Reason.SUBSCRIPTIONS_FULL, f"a client may have {WISHES_MAX}")
        area = "" if wish.area is None else repr(wish.area)
        text = "\n".join([whole_filter(wish), str(wish.query), area, wish.phrase or repr(wish.frame), str(wish.qos)])
        label = crc32(text.encode()) % LABEL_MAX + 1
        while label in self._asked:
            label = label % LABEL_MAX + 1
        return label

    def add(self, label: int, wish: Wish, ticket: int) -> None:
        """Have a subscription."""
        is_taken = any(whole_filter(one.wish) == whole_filter(wish) and not one.is_by_service for one in self._asked.values())
        if is_taken:  # what cannot be said is found out now, while somebody is there to hear of it
            subscription_json(wish, label, self._owner)
        else:
            subscribe_properties(wish, label, is_first=False)
        self._asked[label] = Asked(label, wish, is_taken, ticket)

    def matching(self, topic: str) -> tuple[int, ...]:
        """The labels of those whose filter a topic passes."""
        return tuple(label for label, asked in self._asked.items() if filter_matches(asked.wish.filter, topic))

    def remove(self, label: int, ticket: int) -> Done | None:
        """Have it no more; gives the answer if there is none to wait for."""
        asked = self._asked.get(label)
        if asked is None or asked.stage is Stage.WANTED:
            self._asked.pop(label, None)
            return Done(ticket)
        asked.stage, asked.ticket = Stage.UNWANTED, ticket
        return None

    def take(self) -> list[Packet]:
        """What to send now, while there is a connection."""
        packets: list[Packet] = []
        for asked in list(self._asked.values()):
            if asked.is_by_service:
                self._ask_service(asked)
            elif asked.stage in (Stage.WANTED, Stage.UNWANTED) and self._numbers.has_any:
                packets.append(self._packet(asked))
        return packets

    def _packet(self, asked: Asked) -> Packet:
        number = asked.number = self._numbers.take()
        self._by_number[number] = asked
        topic_filter = whole_filter(asked.wish)
        if asked.stage is Stage.UNWANTED:
            asked.stage = Stage.LEAVING
            return Unsubscribe(number, (topic_filter,))
        asked.stage = Stage.ASKED
        properties = subscribe_properties(asked.wish, asked.label, is_first=asked.is_first)
        return Subscribe(number, (Request(topic_filter, asked.wish.qos),), properties)

    def _ask_service(self, asked: Asked) -> None:
        if asked.stage is Stage.WANTED:
            service, body = Service.SUBSCRIBE, subscription_json(asked.wish, asked.label, self._owner)
            asked.stage = Stage.ASKED
        elif asked.stage is Stage.UNWANTED:
            service, body = Service.UNSUBSCRIBE, unsubscription_json(asked.label)
            asked.stage = Stage.LEAVING
        else:
            return
        ticket = self._outbound.put_first(Publish(SERVICE_PREFIX + service.value, body, qos=1))
        self._by_service_ticket[ticket] = asked

    def on_answer(self, packet: Suback | Unsuback) -> Done | WishRefused | None:
        """SUBACK or UNSUBACK."""
        asked = self._by_number.pop(packet.number, None)
        if asked is None:
            return None
        self._numbers.give_back(packet.number)
        asked.number = None
        is_no = isinstance(packet, Suback) and packet.codes[0] >= Code.UNSPECIFIED_ERROR
        return self._answered(asked, refused_by(packet.codes[0], packet.properties) if is_no else None)

    def maybe_answered(self, done: Done) -> Done | WishRefused | None:
        """What was asked of the service is answered; anything else passes as it is."""
        asked = self._by_service_ticket.pop(done.ticket, None)
        return done if asked is None else self._answered(asked, done.refused)

    def _answered(self, asked: Asked, refused: RefusedByEdge | None) -> Done | WishRefused | None:
        ticket, asked.ticket = asked.ticket, None
        if asked.stage is Stage.UNWANTED:  # the answer to what was asked before that
            asked.ticket = ticket
            return None
        if asked.stage is Stage.LEAVING:
            self._asked.pop(asked.label, None)
            return None if ticket is None else Done(ticket)
        if refused is None:
            asked.stage, asked.is_first = Stage.GRANTED, False
            return None if ticket is None else Done(ticket)
        self._asked.pop(asked.label, None)
        return WishRefused(asked.label, refused) if ticket is None else Done(ticket, refused)

    def on_lost(self) -> list[Done]:
        """The connection is gone; whoever waits for an end waits no longer, for no message comes."""
        done = []
        for number, asked in self._by_number.items():
            self._numbers.give_back(number)
            asked.number = None
        self._by_number.clear()
        for asked in self._asked.values():
            if not asked.is_by_service:
                asked.stage = {Stage.ASKED: Stage.WANTED, Stage.LEAVING: Stage.UNWANTED}.get(asked.stage, asked.stage)
            if asked.stage in (Stage.UNWANTED, Stage.LEAVING) and asked.ticket is not None:
                done.append(Done(asked.ticket))
                asked.ticket = None
        return done

    def start_over(self) -> None:
        """The server has a new session: it knows of none."""
        for asked in list(self._asked.values()):
            if asked.stage is Stage.GRANTED:
                asked.stage = Stage.WANTED
            elif asked.stage is Stage.UNWANTED:
                del self._asked[asked.label]
