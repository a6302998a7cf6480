"""What can go wrong for a client: one tree, each with a text that says what to do next.

What the application itself said wrongly (a tag, a query, an area) is a `Malformed`, raised before anything is sent.
"""

from milepost.model.reasons import Reason


class ClientFault(Exception):
    """The root: whatever the world, not the application, did wrong."""


class RefusedByEdge(ClientFault):
    """The edge said no: to a message, a subscription, or to the client as a whole.

    `number` and `name` are those of a reason of ours; of a server that gives none, those of its protocol's reason code.
    """

    def __init__(self, number: int, name: str, detail: str = "", advice: str = "") -> None:
        super().__init__(number, name, detail, advice)
        self.number = number
        self.name = name
        self.detail = detail
        self.advice = advice

    @classmethod
    def of(cls, reason: Reason, detail: str = "") -> "RefusedByEdge":
        """The same from a reason that is known on this side too."""
        return cls(reason.value, reason.name, detail, reason.advice)

    def __str__(self) -> str:
        detail = f"{self.detail.rstrip('.')}." if self.detail else ""
        return f"{self.number} {self.name}: {' '.join(part for part in (detail, self.advice) if part)}".rstrip(": ")


class EdgeUnreachable(ClientFault):
    """Nobody answered, or the connection was lost, for longer than the client was told to try."""


class EdgeClosed(ClientFault):
    """The application closed the connection; nothing can be sent or received over it any more."""

    def __str__(self) -> str:
        return "this edge was closed; connect again"
