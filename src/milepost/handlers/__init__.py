"""Handlers: third-party services behind validators (D10-D12), and the code that runs them.

    edge ─▶ reserved.publish-ID ─▶ accepts ─▶ function ─▶ answers ─▶ inbox of the edge ─▶ …/accept or …/reject
                                                 │
                                                 └ store: JSON values by key, committed with the answer or not at all

A handler is a Python file that defines one `Handler`; `milepost handler run FILE` runs it.
"""

from milepost.handlers.handler import ANYTHING, NOTHING, Handler, Reject
from milepost.handlers.store import Store
from milepost.model.messages import Message

__all__ = ["ANYTHING", "NOTHING", "Handler", "Message", "Reject", "Store"]
