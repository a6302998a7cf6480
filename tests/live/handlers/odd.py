"""A handler that misbehaves in the way that the request names."""

import os
import threading
from pathlib import Path

from milepost.handlers import ANYTHING, Handler, Message, Reject, Store

app = Handler("odd", timeout_s=0.3)


@app.on(
    "odd/#",
    accepts={"type": "object", "required": ["do"]},
    answers={"type": "object", "properties": {"count": {"type": "integer", "maximum": 1_000_000}}, "required": ["count"]},
)
def act(request: dict[str, object], message: Message, store: Store) -> dict[str, object] | None:
    count = store.get("count", 0)
    assert isinstance(count, int)
    store.put("count", count + 1)
    match request["do"]:
        case "fail" if not Path(str(request.get("unless"))).exists():
            raise RuntimeError("failure on request")
        case "reject":
            raise Reject("no such place")
        case "invalid":
            return {"count": 2_000_000}
        case "hang":
            threading.Event().wait()
        case "die":
            os._exit(3)
        case "no answer":
            return None
        case _:
            pass
    return {"count": count + 1}


@app.on("raw", accepts=ANYTHING, answers=ANYTHING)
def echo(request: bytes, message: Message, store: Store) -> bytes:
    return request
