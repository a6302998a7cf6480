"""The interface through which a broker reports sessions, subscriptions and publications to the federation."""

from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Refused
from milepost.model.reports import Report
from milepost.vetting.access import ClientIdentity


class FederationPort:
    """Receives the events of this edge; events that need no federation may be ignored."""

    def has_interest(self, topic: str) -> bool:
        """Return whether other edges or handlers may want messages on a topic; called when routes are made."""
        raise NotImplementedError

    def forward(self, publication: Publication, now: Instant) -> Refused | None:
        """Forward an accepted message before it is delivered here; if it is refused (no room), it is delivered to no session."""
        raise NotImplementedError

    def forward_report(self, report: Report) -> None:
        """Forward an accepted report."""

    def refuse_claim(self, name: EndpointId, identity: ClientIdentity, now: Instant) -> Refused | None:
        """Check that no other owner has the endpoint at another edge, or waits for its session here."""
        del name, identity, now
        return None

    def arrive(self, name: EndpointId, identity: ClientIdentity, now: Instant, *, clean_start: bool) -> bool:
        """Return whether an arriving endpoint can open its session at once; otherwise it waits for `Welcome`."""
        del name, identity, now, clean_start
        return True

    def is_settled(self, session: Session, now: Instant) -> bool:
        """Return whether the messages an endpoint received at its previous edge are known, or never will be."""
        del session, now
        return True

    def opened(self, session: Session, now: Instant, *, clean_start: bool) -> None:
        """Handle a session that was opened or resumed."""

    def ended(self, session: Session, *, is_replaced: bool) -> None:
        """Handle the end of a session; its subscriptions were ended before. `is_replaced`: its owner opens a new one now."""

    def subscribed(self, session: Session, name: str) -> None:
        """Handle a new subscription, or one replaced under that name."""

    def unsubscribed(self, session: Session, name: str) -> None:
        """Handle the end of a subscription."""
