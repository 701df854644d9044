"""A crowd on one file: `crowd.py PROCESSES EACH`; every process enqueues, claims and settles.

The processes are forks of one that has imported everything and opened nothing, so that all of them
come to the file at the same moment. Whatever reaches one of them makes the crowd fail.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.ledger import Ledger
from tests.torture.programs.forks import failures, fork
from windlass import Kind, State, Windlass
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Lane
from windlass.core.jobs.settle import Transition
from windlass.core.workers import WorkerInfo, WorkerPulse

LANE = Lane("default", "crowded")
LEASE = timedelta(minutes=5)
ledger = Ledger(Path(os.environ["TORTURE_YARD"]) / "ledger")


def main(processes: int, each: int) -> int:
    assert Windlass().store is not None, "imported here, got opened"
    return failures([fork(partial(live, processes * each, each)) for _ in range(processes)])


def live(total: int, each: int) -> None:
    """Enqueue one's share from blocking code, one by one, then work until all is done."""
    app = Windlass()
    producer = app.producer(Kind(LANE.kind, dict[str, Any]))
    for number in range(each):
        ledger.write("enqueued", producer.enqueue({"number": number}).id, 0)
    asyncio.run(work(app, total))


async def work(app: Windlass, total: int) -> None:
    store, me = app.store, f"worker-{os.getpid()}"
    await store.register(
        WorkerInfo(id=me, name=me, host="here", pid=os.getpid(), release="1", lease=LEASE, slots=3)
    )
    while await completed(app) < total:
        sweep = await store.sweep()
        asks = tuple(Ask(lane=head.lane, count=3) for head in sweep.heads)
        jobs = await store.claim(Claim(asks=asks), worker=me, token=secrets.randbits(63))
        for job in jobs:
            ledger.write("run", job.id, job.attempt)
        moves = [Transition(id=job.id, token=job.token or 0, state=State.COMPLETED) for job in jobs]
        assert all(await store.settle(moves)), "somebody else settled a job of mine"
        assert await asyncio.to_thread(store.heartbeat, me, WorkerPulse(), timedelta(seconds=30))
        if not jobs:
            await store.wait(sweep.mark, timedelta(seconds=0.2))
    await app.aclose()


async def completed(app: Windlass) -> int:
    counts = await app.store.counts(most=10**9)
    return sum(each.count for each in counts if each.state is State.COMPLETED)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
