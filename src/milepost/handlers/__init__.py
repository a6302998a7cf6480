"""Handlers: what a third party writes to offer a service behind validators (D10-D12), and what runs it.

    edge ─▶ reserved.publish-ID ─▶ accepts ─▶ function ─▶ answers ─▶ inbox of the edge ─▶ …/accept or …/reject
                                                 │
                                                 └ store: JSON values by key, kept with the answer or not at all

A handler is a Python file with one `Handler` in it; `milepost handler run FILE` runs it.
"""

from milepost.handlers.handler import Handler, Reject
from milepost.handlers.store import Store
from milepost.handlers.validators import ANYTHING, NOTHING
from milepost.model.messages import Message

__all__ = ["ANYTHING", "NOTHING", "Handler", "Message", "Reject", "Store"]
