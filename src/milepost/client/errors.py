"""Client exceptions: one tree, each with a text that says what to do next.

Invalid arguments of the application (a tag, a query, an area) raise `Malformed` before anything is sent.
"""

from milepost.model.reasons import Reason


class ClientFault(Exception):
    """Base of all failures that the application did not cause."""


class RefusedByEdge(ClientFault):
    """The edge refused a message, a subscription, or the client.

    `number` and `name` are those of a Milepost reason; for a server without them, those of the protocol's reason code.
    """

    def __init__(self, number: int, name: str, detail: str = "", advice: str = "") -> None:
        super().__init__(number, name, detail, advice)
        self.number = number
        self.name = name
        self.detail = detail
        self.advice = advice

    @classmethod
    def of(cls, reason: Reason, detail: str = "") -> "RefusedByEdge":
        """Return the refusal for a known reason."""
        return cls(reason.value, reason.name, detail, reason.advice)

    def __str__(self) -> str:
        detail = f"{self.detail.rstrip('.')}." if self.detail else ""
        return f"{self.number} {self.name}: {' '.join(part for part in (detail, self.advice) if part)}".rstrip(": ")


class EdgeUnreachable(ClientFault):
    """The edge did not answer, or the connection was lost, for longer than the configured time limit."""


class ClientClosed(ClientFault):
    """The application closed the client, which can no longer send or receive."""

    def __str__(self) -> str:
        return "the client is closed; call connect again"
