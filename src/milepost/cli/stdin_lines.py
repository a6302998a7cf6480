"""Lines of standard input, for asyncio.

A thread reads it, because an event loop cannot wait for every kind of input (a file, for example). It reads the file descriptor:
a thread blocked inside `sys.stdin` cannot be abandoned when the process ends.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

from milepost.config.errors import UsageFault
from milepost.model.messages import BODY_BYTES_MAX

READ_BYTES: Final = 65_536
CHUNKS_MAX: Final = 4
"""Maximum reads that wait for the consumer."""

Chunk = list[bytes] | UsageFault | None


async def lines_of_stdin() -> AsyncIterator[bytes]:
    """Yield lines as they arrive, without line ends; raise a `UsageFault` for one longer than a message may be."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Chunk] = asyncio.Queue()
    free_slots = threading.Semaphore(CHUNKS_MAX)

    def put(chunk: Chunk) -> None:
        free_slots.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, chunk)

    threading.Thread(target=_read, args=(put,), daemon=True).start()
    while (chunk := await queue.get()) is not None:
        if isinstance(chunk, UsageFault):
            raise chunk
        for line in chunk:
            yield line
        free_slots.release()


def _read(put: Callable[[Chunk], None]) -> None:
    rest = b""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        while data := os.read(0, READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > BODY_BYTES_MAX:
                put(UsageFault(f"standard input has a line of more than {BODY_BYTES_MAX} bytes: send it in parts"))
                return
            put([line.removesuffix(b"\r") for line in lines])
        put([rest] if rest else [])
        put(None)
