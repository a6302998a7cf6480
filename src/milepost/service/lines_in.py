"""Standard input, line by line, beside everything else that asyncio does.

A thread reads it, because not every standard input (a file, say) can be waited for otherwise. It reads the descriptor itself: a
thread that waits inside `sys.stdin` could not be left behind when the process ends.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

from milepost.model.messages import BODY_BYTES_MAX
from milepost.service.faults import UsageFault

READ_BYTES: Final = 65_536
CHUNKS_MAX: Final = 4
"""So many reads may wait for whoever takes the lines."""

Chunk = list[bytes] | UsageFault | None


async def lines_of_stdin() -> AsyncIterator[bytes]:
    """Lines as they come, without their ends; a `UsageFault` about one that is longer than a message may be."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Chunk] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_MAX)

    def put(chunk: Chunk) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, chunk)

    threading.Thread(target=_read, args=(put,), daemon=True).start()
    while (chunk := await queue.get()) is not None:
        if isinstance(chunk, UsageFault):
            raise chunk
        for line in chunk:
            yield line
        room.release()


def _read(put: Callable[[Chunk], None]) -> None:
    rest = b""
    with contextlib.suppress(RuntimeError):  # nobody takes lines any more: the loop is closed
        while data := os.read(0, READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > BODY_BYTES_MAX:
                put(UsageFault(f"standard input has a line of more than {BODY_BYTES_MAX} bytes: send it in parts"))
                return
            put([line.removesuffix(b"\r") for line in lines])
        put([rest] if rest else [])
        put(None)
