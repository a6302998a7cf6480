"""What a session tells its skin."""

from dataclasses import dataclass

from milepost.client.carriers import Unshown
from milepost.client.faults import ClientFault, RefusedByEdge
from milepost.model.endpoints import EndpointId
from milepost.model.messages import Message
from milepost.model.sessions import MessageName, Name
from milepost.model.subscriptions import SubscriptionId


@dataclass(frozen=True, slots=True)
class Connected:
    """The edge `edge` answered; `is_resumed` if it still had the session with its subscriptions."""

    edge: EndpointId
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class Away:
    """The edge is not there any more, and is asked again."""

    why: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message to be shown; `receipt`, if there is one, is to be given back to `Session.took`."""

    message: Message
    labels: tuple[SubscriptionId, ...]
    is_signed: bool
    receipt: MessageName | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What was published, subscribed to or unsubscribed from under this name is done, or refused."""

    name: Name
    refused: RefusedByEdge | None = None


@dataclass(frozen=True, slots=True)
class Hidden:
    """A message came that is not to be shown."""

    why: Unshown


@dataclass(frozen=True, slots=True)
class Complained:
    """The edge refused something that has no name: a report; or, for now, the session."""

    refused: RefusedByEdge


@dataclass(frozen=True, slots=True)
class Ended:
    """It is over; without a fault: because it was closed."""

    fault: ClientFault | None


Event = Connected | Away | Arrived | Done | Hidden | Complained | Ended
