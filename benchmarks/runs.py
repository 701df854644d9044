"""Owns the question what a run costs by itself: from its start to the word that it is settled.

A real worker runs no-ops that no store has claimed, and whose outcomes no store writes; so there is
nothing in it but our own Python. Many short rounds, of which the best tells what it takes when
nobody else has the processor: that differs by a few hundredths from minute to minute, where a
drain differs by half.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from windlass import Windlass
from windlass.core.jobs.job import Job
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.worker.engine.engine import Engine

_RUNS = 400
_BREATH = 30
"""Rounds after which everything else in the process has its turn."""
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "concurrency limit": {"concurrency": 10 * _RUNS},
    "rate limit": {"rate": "1000000/s"},
}


class _Nowhere:
    """What takes outcomes and keeps none."""

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        return [True] * len(transitions)


async def _measure(options: Mapping[str, Any], rounds: int) -> list[float]:
    """Return what a run took in every round, in microseconds of this thread's processor."""
    app = Windlass("memory://", log_level="warning")

    async def noop() -> None: ...

    app.job(**options)(noop)
    worker = app.worker(concurrency=10 * _RUNS)
    serving = asyncio.create_task(worker.run())
    while not worker.id:  # noqa: ASYNC110 - nobody tells.
        await asyncio.sleep(0.01)
    engine: Engine = worker._parts.engine
    engine.completer._store = _Nowhere()  # type: ignore[assignment]
    took = []
    for number in range(1, rounds + 1):
        jobs = [_claimed(app, worker.id, number) for _ in range(_RUNS)]
        began = time.thread_time()
        for job in jobs:
            engine.start(job)
        while engine.runs or not engine.completer.is_idle:  # noqa: ASYNC110 - as above.
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        took.append((time.thread_time() - began) / _RUNS * 1e6)
        if number % _BREATH == 0:
            await asyncio.sleep(0.05)
    worker.stop()
    await serving
    return sorted(took)


def _claimed(app: Windlass, worker: str, token: int) -> Job:
    now = datetime.now(UTC)
    return Job(
        id=app.ids.next(),
        kind="noop",
        queue="default",
        priority=0,
        key="",
        state=State.RUNNING,
        payload=b"{}",
        due_at=now,
        created_at=now,
        started_at=now,
        attempt=1,
        worker=worker,
        token=token,
    )


def main() -> None:
    """Measure, and print a line for each kind of job."""
    parser = argparse.ArgumentParser(description="What a run takes of the worker's own Python.")
    parser.add_argument("--rounds", type=int, default=300, help="of 400 runs each")
    rounds = parser.parse_args().rounds
    for name, options in _KINDS.items():
        took = asyncio.run(_measure(options, rounds))
        print(f"{name:<18} {took[0]:5.1f} us a run at best, {took[len(took) // 2]:5.1f} median")


if __name__ == "__main__":
    main()
