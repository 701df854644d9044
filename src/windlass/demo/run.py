"""Owns the course of the demo: enqueue, start a worker, watch, draw up the books, clean up."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import Popen
from uuid import UUID

from rich.console import Console
from rich.text import Text

from windlass.core.errors import WindlassError
from windlass.core.job import Job, JobFilter
from windlass.core.states import FINISHED, State
from windlass.core.text import inert_lines
from windlass.demo import load, screen
from windlass.demo.jobs import app, import_feed
from windlass.demo.process import last_lines, worker_process
from windlass.demo.tally import complaints, tally

_LOOK = 0.1
_PATIENCE = 60.0
_PAGE = 500
Counts = Counter[State]


class DemoFailed(WindlassError):
    """The demo did not come to its end, or to a wrong one; `log` tells what the worker said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def run_demo(count: int, console: Console) -> int:
    """Run so many jobs before somebody's eyes; return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="windlass-demo-") as directory:
            return asyncio.run(_demo(count, Path(directory), console))
    except DemoFailed as failed:
        console.print(Text(inert_lines(failed.log), "dim"))
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(Text("stopped; the worker has ended and nothing is left behind", "dim"))
        return 130


async def _demo(count: int, directory: Path, console: Console) -> int:
    task = asyncio.current_task()
    if task is not None:
        # As with Ctrl-C: the worker is ended and the directory removed before this process goes.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    url = f"sqlite:///{directory / 'demo.db'}"
    app.configure(url=url)
    try:
        console.print(Text.assemble(("windlass demo", "bold"), f"  in {app.store.location}\n"))
        enqueued = await _enqueue(count, console)
        with worker_process(directory, url) as worker:
            console.print(f"worker process {worker.pid} started\n")
            await _watch(count, worker, directory, console)
        return await _sum_up(enqueued, worker.returncode, console)
    finally:
        await app.aclose()


async def _enqueue(count: int, console: Console) -> Counter[str]:
    """Enqueue everything at once, and the unique job once more."""
    drafts = load.drafts(count)
    began = time.monotonic()
    handles = await app.aenqueue_many(drafts)
    took = time.monotonic() - began
    (again,) = await app.aenqueue_many([load.digest()])
    if not again.existing or again.id != handles[0].id:
        raise DemoFailed("a second enqueue under a unique key did not return the first job")
    console.print(f"{count:,} jobs enqueued in {took * 1000:,.0f} ms")
    console.print("daily_digest enqueued again under its unique key: the first handle came back")
    return Counter(draft.job.kind for draft in drafts)


async def _watch(count: int, worker: Popen[bytes], directory: Path, console: Console) -> None:
    """Look on until every job has its end, as long as there is any progress."""
    with screen.progress(count, console) as show:
        latest, since = -1, time.monotonic()
        while True:
            counts = await _counts()
            show(counts)
            done = sum(counts[state] for state in FINISHED)
            if done >= count:
                return
            if worker.poll() is not None:
                told = f"the worker ended with exit code {worker.returncode}"
                raise DemoFailed(told, last_lines(directory))
            if done > latest:
                latest, since = done, time.monotonic()
            if time.monotonic() - since > _PATIENCE:
                told = f"no job has ended for {_PATIENCE:.0f} s"
                raise DemoFailed(told, last_lines(directory))
            await asyncio.sleep(_LOOK)


async def _counts() -> Counts:
    counts: Counts = Counter()
    for each in await app.store.counts():
        counts[each.state] += each.count
    return counts


async def _sum_up(enqueued: Counter[str], exit_code: int, console: Console) -> int:
    jobs = [job async for job in _all_jobs()]
    books = tally(enqueued, jobs)
    console.print()
    console.print(screen.summary(books))
    wrong = complaints(books, poison=import_feed.kind)
    if exit_code != 0:
        wrong.append(f"the worker was told to stop and ended with exit code {exit_code}")
    if wrong:
        raise DemoFailed("this does not add up: " + "; ".join(wrong))
    console.print(screen.closing(jobs))
    return 0


async def _all_jobs() -> AsyncIterator[Job]:
    after: UUID | None = None
    while True:
        page = await app.store.find(JobFilter(), limit=_PAGE, after=after)
        for job in page.jobs:
            yield job
        after = page.after
        if after is None:
            return
