"""Subscriptions that the client wants at the server, over any number of connections and sessions.

    stage           when                                 next
    UNSENT          not requested over this connection   it is sent ─▶ REQUESTED
    REQUESTED       SUBSCRIBE was sent                   SUBACK: granted ─▶ GRANTED, refused ─▶ gone   connection lost ─▶ UNSENT
    GRANTED         messages arrive                      the server lost the session ─▶ UNSENT
    ENDING          to be ended                          it is sent ─▶ UNSUBSCRIBING                   session lost ─▶ gone
    UNSUBSCRIBING   UNSUBSCRIBE was sent                 UNSUBACK ─▶ gone                              connection lost ─▶ ENDING

MQTT has one subscription per filter. A second one for the same filter is requested as JSON on `$milepost/subscribe`, which goes
through `MqttOutbound` and is resent by it; a Milepost edge distinguishes the two by their subscription identifiers.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done, SubscriptionRefused
from milepost.client.messages import SubscriptionRequest
from milepost.client.mqtt.mapping import full_filter, refused_by, subscribe_properties, subscription_json, unsubscription_json
from milepost.client.mqtt.outbound import MqttOutbound, PacketIds
from milepost.client.subscriptions import ClientSubscriptions
from milepost.model.endpoints import EndpointId
from milepost.model.topics import filter_matches
from milepost.wire.mqtt import Code, FilterRequest, Packet, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from milepost.wire.requests import REQUEST_PREFIX, RequestKind


class SubscriptionStage(Enum):
    """Progress of a subscription."""

    UNSENT = 0
    REQUESTED = 1
    GRANTED = 2
    ENDING = 3
    UNSUBSCRIBING = 4


_AFTER_LOSS: Final = {
    SubscriptionStage.REQUESTED: SubscriptionStage.UNSENT,
    SubscriptionStage.UNSUBSCRIBING: SubscriptionStage.ENDING,
}
_ENDING: Final = (SubscriptionStage.ENDING, SubscriptionStage.UNSUBSCRIBING)


@dataclass(slots=True, eq=False)
class SubscriptionState:
    """One subscription."""

    id: int
    request: SubscriptionRequest
    is_by_service: bool
    ticket: int | None
    """Ticket of the caller that waits for the answer; None once it was granted."""
    stage: SubscriptionStage = SubscriptionStage.UNSENT
    is_first: bool = True


Answer = Done | SubscriptionRefused


class MqttSubscriptions(ClientSubscriptions[SubscriptionState]):
    """All subscriptions of a client."""

    def __init__(self, owner: EndpointId, packet_ids: PacketIds, outbound: MqttOutbound) -> None:
        super().__init__()
        self._owner = owner
        self._packet_ids = packet_ids
        self._outbound = outbound
        self._by_packet_id: dict[int, SubscriptionState] = {}
        self._by_service_ticket: dict[Hashable, SubscriptionState] = {}

    def add(self, subscription_id: int, request: SubscriptionRequest, ticket: int) -> None:
        """Add a subscription; raise `Malformed` if it cannot be encoded."""
        is_filter_used = any(full_filter(state.request) == full_filter(request) and not state.is_by_service for state in self)
        if is_filter_used:  # encode now, while a caller can receive the exception
            subscription_json(request, subscription_id, self._owner)
        else:
            subscribe_properties(request, subscription_id, is_first=False)
        self._entries[subscription_id] = SubscriptionState(subscription_id, request, is_filter_used, ticket)

    def matching(self, topic: str) -> tuple[int, ...]:
        """Return the ids of the subscriptions whose filter matches a topic."""
        return tuple(state.id for state in self if filter_matches(state.request.filter, topic))

    def remove(self, subscription_id: int, ticket: int) -> Done | None:
        """End a subscription; return its `Done` if there is no answer to wait for."""
        state = self._entries.get(subscription_id)
        if state is None or state.stage is SubscriptionStage.UNSENT:
            self._entries.pop(subscription_id, None)
            return Done(ticket)
        state.stage, state.ticket = SubscriptionStage.ENDING, ticket
        return None

    def take(self) -> list[Packet]:
        """Return the packets to send over the current connection."""
        packets: list[Packet] = []
        for state in self:
            if state.stage not in (SubscriptionStage.UNSENT, SubscriptionStage.ENDING):
                continue
            if state.is_by_service:
                self._request_from_service(state)
            elif self._packet_ids.has_free:
                packets.append(self._packet(state))
        return packets

    def _packet(self, state: SubscriptionState) -> Packet:
        packet_id = self._packet_ids.take()
        self._by_packet_id[packet_id] = state
        topic_filter = full_filter(state.request)
        if state.stage is SubscriptionStage.ENDING:
            state.stage = SubscriptionStage.UNSUBSCRIBING
            return Unsubscribe(packet_id, (topic_filter,))
        state.stage = SubscriptionStage.REQUESTED
        properties = subscribe_properties(state.request, state.id, is_first=state.is_first)
        return Subscribe(packet_id, (FilterRequest(topic_filter, state.request.qos),), properties)

    def _request_from_service(self, state: SubscriptionState) -> None:
        if state.stage is SubscriptionStage.UNSENT:
            service, body = RequestKind.SUBSCRIBE, subscription_json(state.request, state.id, self._owner)
            state.stage = SubscriptionStage.REQUESTED
        else:
            service, body = RequestKind.UNSUBSCRIBE, unsubscription_json(state.id)
            state.stage = SubscriptionStage.UNSUBSCRIBING
        ticket = self._outbound.put_first(Publish(REQUEST_PREFIX + service.value, body, qos=1))
        self._by_service_ticket[ticket] = state

    def on_answer(self, packet: Suback | Unsuback) -> Answer | None:
        """Process SUBACK or UNSUBACK."""
        state = self._by_packet_id.pop(packet.packet_id, None)
        if state is None:
            return None
        self._packet_ids.release(packet.packet_id)
        is_refused = isinstance(packet, Suback) and packet.codes[0] >= Code.UNSPECIFIED_ERROR
        return self._answered(state, refused_by(packet.codes[0], packet.properties) if is_refused else None)

    def on_done(self, done: Done) -> Answer | None:
        """Translate the answer of the service; any other `Done` passes unchanged."""
        state = self._by_service_ticket.pop(done.key, None)
        return done if state is None else self._answered(state, done.refused)

    def _answered(self, state: SubscriptionState, refused: RefusedByEdge | None) -> Answer | None:
        if state.stage is SubscriptionStage.ENDING:  # this answers SUBSCRIBE; UNSUBSCRIBE is yet to be sent
            return None
        ticket, state.ticket = state.ticket, None
        if state.stage is SubscriptionStage.UNSUBSCRIBING:
            self._entries.pop(state.id, None)
            return None if ticket is None else Done(ticket)
        if refused is None:
            state.stage, state.is_first = SubscriptionStage.GRANTED, False
            return None if ticket is None else Done(ticket)
        self._entries.pop(state.id, None)
        return SubscriptionRefused(state.id, refused) if ticket is None else Done(ticket, refused)

    def on_lost(self) -> list[Done]:
        """Process the loss of the connection: pending unsubscriptions are done, because no message arrives any more."""
        done = []
        for packet_id in self._by_packet_id:
            self._packet_ids.release(packet_id)
        self._by_packet_id.clear()
        for state in self:
            if not state.is_by_service:
                state.stage = _AFTER_LOSS.get(state.stage, state.stage)
            if state.stage in _ENDING and state.ticket is not None:
                done.append(Done(state.ticket))
                state.ticket = None
        return done

    def restart(self) -> None:
        """Start a new session, which has no subscriptions."""
        for state in self:
            if state.stage is SubscriptionStage.GRANTED:
                state.stage = SubscriptionStage.UNSENT
            elif state.stage is SubscriptionStage.ENDING:
                del self._entries[state.id]
