"""Claims a job as a worker does, and never starts it: `claim_and_wait.py KIND`, to be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from tests.support.worker_processes import LEASE
from windlass import Windlass
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Lane
from windlass.core.workers import WorkerInfo


async def main(kind: str) -> None:
    store = Windlass().store
    worker = WorkerInfo(
        id="doomed",
        name="doomed",
        host="here",
        pid=os.getpid(),
        release="1",
        lease=timedelta(seconds=LEASE),
        slots=1,
    )
    await store.register(worker)
    claim = Claim(asks=(Ask(lane=Lane("default", kind), count=1),))
    jobs = await store.claim(claim, worker="doomed", token=1)
    assert len(jobs) == 1
    print("claimed", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
