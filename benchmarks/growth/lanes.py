"""Owns what lanes of other jobs cost a job in an empty lane: how long it waits for its start."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from benchmarks.growth.crowds import Figure
from benchmarks.growth.stage import QUEUE, Stage
from windlass import Windlass

_PACES = (0.01, 0.05)
"""Seconds between two jobs: so often that the worker polls, and so seldom that it is woken."""
_FEW = 1
_COPY_LANES = """
    INSERT INTO windlass.jobs (id, kind, queue, payload)
    SELECT gen_random_uuid(), 'kind_of_others', 'queue_of_others_' || n, '{{}}'
    FROM generate_series({first}, {last}) AS n
"""


async def lanes(stage: Stage, *, number: int, seconds: float) -> Sequence[Figure]:
    """Start jobs of one queue beside one lane of other jobs, and beside many."""
    found: dict[str, list[float]] = {}
    first = 1
    for last in (_FEW, number):
        stage.sql(_COPY_LANES.format(first=first, last=last), "VACUUM ANALYZE windlass.jobs")
        first = last + 1
        for name, queues in {"its queue": [QUEUE], "all queues": None}.items():
            for pace in _PACES:
                text = f"a job each {pace * 1e3:g} ms to a worker of {name}: median to its start"
                waits = await _waits(stage.url, queues, pace, seconds)
                found.setdefault(text, []).append(statistics.median(waits) * 1e3)
    return [
        Figure(
            name=name,
            few=f"{_FEW} other lane",
            many=f"{number:,} other lanes",
            of_few=of_few,
            of_many=of_many,
        )
        for name, (of_few, of_many) in found.items()
    ]


async def _waits(
    url: str, queues: Sequence[str] | None, pace: float, seconds: float
) -> Sequence[float]:
    """Enqueue at a steady pace from a thread, and return how long each job waited for its start."""
    waits: list[float] = []
    over = threading.Event()
    app = Windlass(url, log_level="warning")

    @app.job(queue=QUEUE)
    async def arrive(sent: float) -> None:
        waits.append(time.perf_counter() - sent)

    def produce() -> None:
        while not over.wait(pace):
            arrive.enqueue(time.perf_counter())

    worker = asyncio.create_task(app.arun_worker(queues=queues))
    await asyncio.sleep(1)  # What a worker does at its start is not measured.
    producer = asyncio.create_task(asyncio.to_thread(produce))
    await asyncio.sleep(seconds)
    over.set()
    await producer
    worker.cancel()
    with suppress(asyncio.CancelledError):
        await worker
    await app.aclose()
    return waits
