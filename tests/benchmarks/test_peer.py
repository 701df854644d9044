"""Laws of a contender's process."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from benchmarks.peer import Peer, Starts, _Process


class _Idle:
    """A queue that only notes what it is given."""

    async def work(self, slots: int | None, *, idle: bool) -> None:
        del slots, idle
        await asyncio.Event().wait()


def test_a_number_of_starts_that_was_reached_does_not_stand_for_a_greater_one() -> None:
    """Prevents: a second wait of the same race ends at once, with fewer jobs than it waits for."""

    async def twice() -> tuple[int, int]:
        starts = Starts()
        process = _Process(cast("Peer", cast("Any", _Idle())), starts)
        await process.work()
        starts.note(1)
        first = await process.reach(expected=1, patience=30)
        asyncio.get_running_loop().call_later(0.05, starts.note, 2)
        second = await process.reach(expected=2, patience=30)
        await process.stop()
        return first, second

    assert asyncio.run(twice()) == (1, 2)


def test_starts_that_threads_note_are_noticed() -> None:
    async def in_a_thread() -> int:
        starts = Starts()
        process = _Process(cast("Peer", cast("Any", _Idle())), starts)
        await process.work()
        waiting = asyncio.create_task(process.reach(expected=3, patience=30))
        await asyncio.sleep(0)
        for number in range(3):
            await asyncio.to_thread(starts.note_in_thread, number)
        reached = await waiting
        await process.stop()
        return reached

    assert asyncio.run(in_a_thread()) == 3
