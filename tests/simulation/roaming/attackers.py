"""Clients that use the names of other endpoints: without proof of their identity, or as another user.

An attacker subscribes to nothing: every message it gets was queued for, or addressed to, the session of its victim.
"""

from typing import TYPE_CHECKING

from milepost.wire.mqtt import Connack, Connect, Disconnect, Packet, Properties, Publish, Version, encode
from simulation.roaming.clients import ClientConnection
from simulation.roaming.ledger import Account

if TYPE_CHECKING:
    from simulation.roaming.nodes import EdgeNode
    from simulation.roaming.world import World


class Attacker:
    """One attacker of one endpoint."""

    def __init__(self, world: "World", name: str, user: str | None) -> None:
        self.world = world
        self.name = name
        self.user = user
        self.account = Account(name)
        self.client_link: ClientConnection | None = None
        self.connections = 0
        self.has_session = False
        self.admitted = 0
        """Connections that were opened, until an edge found that the endpoint belongs to another owner."""
        self.refused = 0
        self.faults: list[str] = []
        self._may_have_session = False
        """Whether an edge may keep a session that it opened itself."""
        self._expects_none = True

    def connect(self, node: "EdgeNode", *, clean_start: bool, expiry_s: int) -> None:
        """Connect to an edge under the name of the victim."""
        process = node.process
        if process is None:
            return
        self.drop_connection()
        self.connections += 1
        self.client_link = ClientConnection(node, process, self)
        self._expects_none = not self._may_have_session
        self._may_have_session |= expiry_s > 0
        self.world.note(f"attacker {self.user} of {self.name} connects to {node.ref}{' with a clean start' * clean_start}")
        packet = Connect(self.name, Version.V5, clean_start, 0, properties=Properties(session_expiry_s=expiry_s or None))
        self.client_link.up.append((encode(packet, Version.V5), None))

    def drop_connection(self) -> None:
        """Drop the connection; the edge notices later."""
        if self.client_link is not None:
            self.client_link.is_lost = True
            self.world.lost_client_links.append(self.client_link)
            self.client_link = None

    def read_input(self) -> None:
        """Read the received packets."""
        client_link = self.client_link
        if client_link is None:
            return
        for packet in client_link.read():
            self._on_packet(packet)
        if client_link.stream.is_finished or not client_link.is_alive:
            self.drop_connection()

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Connack(is_present, code):
                self.world.note(f"attacker {self.user} of {self.name}: {code.name}")
                self.admitted += not code
                self.refused += bool(code)
                session = self.client_link.connection.session if self.client_link is not None else None
                if (is_present and self._expects_none) or (not code and session is not None and session.subscriptions):
                    self.faults.append(f"attacker {self.user} of {self.name} got a session that is not its own")
            case Publish():
                self.faults.append(f"attacker {self.user} of {self.name} received {packet.payload!r}")
            case Disconnect():
                self.world.note(f"attacker {self.user} of {self.name} gets DISCONNECT {packet.code.name}")
            case _:
                pass
