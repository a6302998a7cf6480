import asyncio

from milepost.dashboard.server import WAITING_MAX, Viewer


def whole() -> bytes:
    return b"whole"


def test_a_new_viewer_gets_a_whole_scene_and_then_diffs() -> None:
    async def view() -> list[bytes]:
        viewer = Viewer()
        viewer.offer(b"too early")
        frames = [await viewer.next_frame(whole)]
        viewer.offer(b"1")
        viewer.offer(b"2")
        return [*frames, await viewer.next_frame(whole), await viewer.next_frame(whole)]

    assert asyncio.run(view()) == [b"whole", b"1", b"2"]


def test_a_slow_viewer_loses_diffs_and_gets_a_whole_scene() -> None:
    async def view() -> tuple[list[bytes], int]:
        viewer = Viewer()
        frames = [await viewer.next_frame(whole)]
        for number in range(WAITING_MAX + 5):
            viewer.offer(str(number).encode())
        frames.append(await viewer.next_frame(whole))
        viewer.offer(b"next")
        return [*frames, await viewer.next_frame(whole)], viewer.skipped

    assert asyncio.run(view()) == ([b"whole", b"whole", b"next"], WAITING_MAX + 5)


def test_a_viewer_that_is_up_to_date_waits() -> None:
    async def view() -> bool:
        viewer = Viewer()
        await viewer.next_frame(whole)
        waiting = asyncio.ensure_future(viewer.next_frame(whole))
        await asyncio.sleep(0)
        is_waiting = not waiting.done()
        viewer.offer(b"1")
        return is_waiting and await waiting == b"1"

    assert asyncio.run(view())
