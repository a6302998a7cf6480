"""Outgoing handovers: the endpoints that have left, and the replies this edge owes (docs/reference/roaming.md).

After its session was handed over, an edge still owes the endpoint something (`OutgoingHandovers`):

    session handed over ─▶ subscriptions stay announced ─▶ `HandoverTaken` ─▶ withdrawn ─▶ own withdrawal read: no interest
    session received    ─▶ subscriptions announced      ─▶ `HandoverTaken` to the sender

- the subscriptions of an endpoint stay announced here until the edge that has the session has announced them itself and this
  edge has read that;
- the sender of a handover gets a `HandoverTaken` in the end, whatever happens to the session: owed replies are stored apart;
- a claim remains while any state of the endpoint is in transit from here: an edge that waits for the session knows of it.
"""

from typing import NamedTuple

from milepost.federation.forwarding import MOVING_ENDPOINTS
from milepost.federation.member_state import SiteState
from milepost.federation.residency import OutgoingHandover, ResidencyEvent, advance, outgoing_from_bytes, outgoing_to_bytes
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.site_records import (
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    EndpointClaim,
    Epoch,
    Handover,
    HandoverTaken,
    HeldSubscription,
    claim_key,
    edge_ref,
    interest_key,
)


class OwedReply(NamedTuple):
    """A handover that is not answered yet, by its claim, sender and number."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    number: int

    @property
    def key(self) -> str:
        """The key under which it is stored."""
        return f"{self.endpoint}\n{self.epoch}\n{self.sender}\n{self.number}"


class OutgoingHandovers:
    """The endpoints that have left, and the replies this edge owes."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.leaving: dict[tuple[EndpointId, Epoch], OutgoingHandover] = {}
        self.owed_replies: dict[OwedReply, int] = {}
        """Replies, with the announcement (`Outbox.last_announced`) that the log must have before the reply is sent."""
        self._withdrawn: dict[str, list[str]] = {}
        """Withdrawn announcements, with the keys of the interest that ends when the withdrawal is read."""

    def restore(self, key: str, data: bytes) -> None:
        """Restore a handover or a reply that was stored."""
        endpoint, epoch, *rest = key.split("\n")
        if rest:
            sender, number = rest
            self.owed_replies[OwedReply(EndpointId(endpoint), Epoch(int(epoch)), edge_ref(sender), int(number))] = 0
            return
        outgoing = outgoing_from_bytes(EndpointId(endpoint), data)
        self.leaving[outgoing.endpoint, outgoing.epoch] = outgoing
        self._register_interest(outgoing)

    def begin(self) -> None:
        """Resume after the registry was read and missing announcements were repeated."""
        self.owed_replies = dict.fromkeys(self.owed_replies, self._state.outbox.last_announced)

    def send_due_replies(self, now: Instant) -> None:
        """Send the replies whose announcements the log has."""
        outbox = self._state.outbox
        if not self.owed_replies or not self._state.is_ready:
            return
        for reply in [one for one, after in self.owed_replies.items() if after <= outbox.announced_up_to]:
            del self.owed_replies[reply]
            self._state.broker.store_residency(reply.key, None)
            self._send_taken(reply.endpoint, reply.epoch, reply.sender, self._subscriptions_of(reply.endpoint), now)

    def has_left(self, endpoint: EndpointId) -> bool:
        """Return whether a handover of an endpoint is not confirmed yet."""
        return any(one.endpoint == endpoint for one in self.leaving.values())

    def add(self, outgoing: OutgoingHandover) -> None:
        """Add a handover, or one more to the same claim."""
        before = self.leaving.get((outgoing.endpoint, outgoing.epoch))
        if before is not None:
            names = {held.name for held in outgoing.subscriptions}
            outgoing.subscriptions += tuple(held for held in before.subscriptions if held.name not in names)
            outgoing.relayed += before.relayed
            outgoing.handover_count += before.handover_count
        self.leaving[outgoing.endpoint, outgoing.epoch] = outgoing
        self._state.broker.store_residency(_leaving_key(outgoing), outgoing_to_bytes(outgoing))
        self._register_interest(outgoing)

    def _register_interest(self, outgoing: OutgoingHandover) -> None:
        for held in outgoing.subscriptions:
            self._state.interest.put(_interest_key(outgoing, held), MOVING_ENDPOINTS, held.subscription)

    def on_taken(self, taken: HandoverTaken, now: Instant) -> bool:
        """Handle the reply to a handover; return whether all handovers to its claim are confirmed."""
        outgoing = self.leaving.get((taken.endpoint, taken.epoch))
        if outgoing is None:
            return False
        outgoing.handover_count -= 1
        if outgoing.handover_count:
            self._state.broker.store_residency(_leaving_key(outgoing), outgoing_to_bytes(outgoing))
            return False
        advance(outgoing, ResidencyEvent.TAKEN)
        del self.leaving[outgoing.endpoint, outgoing.epoch]
        self._state.broker.store_residency(_leaving_key(outgoing), None)
        for sender, epoch in outgoing.relayed:
            self._send_taken(outgoing.endpoint, epoch, sender, taken.subscriptions, now)
        self._withdraw(outgoing)
        return True

    def _withdraw(self, outgoing: OutgoingHandover) -> None:
        state = self._state
        session = state.broker.find_session(outgoing.endpoint)
        for held in outgoing.subscriptions:
            key = interest_key(state.edge, outgoing.endpoint, held.name)
            if (session is not None and held.name in session.subscriptions) or self._leaves_with(outgoing.endpoint, held.name):
                state.interest.remove(_interest_key(outgoing, held))
            else:
                state.outbox.announce(SUBSCRIPTION_INFO, key, None)
                self._withdrawn.setdefault(key, []).append(_interest_key(outgoing, held))

    def _leaves_with(self, endpoint: EndpointId, name: str) -> bool:
        return any(held.name == name for one in self.leaving.values() if one.endpoint == endpoint for held in one.subscriptions)

    def end_interest(self, key: str) -> None:
        """End the interest of a withdrawn announcement: this edge has read its withdrawal, or announces it again."""
        for one in self._withdrawn.pop(key, ()):
            self._state.interest.remove(one)

    def withdraw_claim(self, endpoint: EndpointId) -> None:
        """Withdraw a claim, unless state of the endpoint is still in transit from here."""
        state = self._state
        if not self.has_left(endpoint):
            state.registry.remove(endpoint, state.edge)
            state.outbox.announce(VEHICLE_INFO, claim_key(endpoint, state.edge), None)

    def send_no_session(self, claim: EndpointClaim, now: Instant, *, is_complete: bool) -> None:
        """Notify the edge that waits for a handover that there is none."""
        number = self._state.outbox.next_number(now)
        answer = Handover(
            claim.endpoint, claim.epoch, self._state.edge, claim.edge, number, is_complete=is_complete, has_session=False
        )
        self._state.send_to_edge(answer, number, claim.edge)

    def owe_reply(self, handover: Handover) -> None:
        """Answer a handover with `HandoverTaken` once the log has all announcements made until now."""
        reply = OwedReply(handover.endpoint, handover.epoch, handover.sender, handover.number)
        self.owed_replies[reply] = self._state.outbox.last_announced
        self._state.broker.store_residency(reply.key, b"")

    def decline(self, handover: Handover, now: Instant) -> None:
        """Notify the sender of a rejected handover that it need not announce the subscriptions any more."""
        self._send_taken(handover.endpoint, handover.epoch, handover.sender, (), now)

    def _send_taken(
        self, endpoint: EndpointId, epoch: Epoch, receiver: EdgeRef, held: tuple[HeldSubscription, ...], now: Instant
    ) -> None:
        number = self._state.outbox.next_number(now)
        self._state.send_to_edge(HandoverTaken(endpoint, epoch, self._state.edge, receiver, number, held), number, receiver)

    def _subscriptions_of(self, endpoint: EndpointId) -> tuple[HeldSubscription, ...]:
        session = self._state.broker.find_session(endpoint)
        if session is not None:
            return self._state.broker.subscriptions_of(session)
        return next((one.subscriptions for one in self.leaving.values() if one.endpoint == endpoint), ())


def _leaving_key(outgoing: OutgoingHandover) -> str:
    return f"{outgoing.endpoint}\n{outgoing.epoch}"


def _interest_key(outgoing: OutgoingHandover, held: HeldSubscription) -> str:
    return f"leaving\n{outgoing.endpoint}\n{outgoing.epoch}\n{held.name}"
