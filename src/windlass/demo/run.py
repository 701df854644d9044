"""Owns the course of the demo: enqueue, start a worker, watch, add up, clean up."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from subprocess import Popen
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.text import Text

from windlass.app import Windlass
from windlass.core.errors import WindlassError
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import FINISHED, State
from windlass.core.values.text import inert_lines
from windlass.demo import load, screen
from windlass.demo.jobs import app, import_feed
from windlass.demo.tally import complaints, tally
from windlass.demo.worker_process import last_lines, worker_process

_ALL = 10**9
_POLL_SECONDS = 0.1
_STALL_SECONDS = 60.0
_PAGE = 500
Counts = Counter[State]
ServePage = Callable[[Windlass], Coroutine[Any, Any, None]]


class DemoFailed(WindlassError):
    """The demo did not finish, or its sums are wrong; `log` is the output of the worker."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def run_demo(count: int, console: Console, page: ServePage | None = None) -> int:
    """Run this many jobs and show their progress; return the exit code.

    A `page` is served from the beginning until a signal ends it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="windlass-demo-") as directory:
            return asyncio.run(_demo(count, Path(directory), console, page))
    except DemoFailed as failed:
        console.print(Text(inert_lines(failed.log), "dim"))
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(Text("stopped; the worker has ended and nothing is left behind", "dim"))
        return 130


async def _demo(count: int, directory: Path, console: Console, page: ServePage | None) -> int:
    task = asyncio.current_task()
    if task is not None:
        # Like Ctrl-C: the worker is ended and the directory removed before this process exits.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def stop(_: object) -> None:
        # The page takes the signals while it is served, and ends with one.
        if task is not None:
            task.cancel()

    url = f"sqlite:///{directory / 'demo.db'}"
    app.configure(url=url)
    try:
        console.print(Text.assemble(("windlass demo", "bold"), f"  in {app.store.location}\n"))
        enqueued = await _enqueue(count, console)
        serving = None if page is None else asyncio.create_task(page(app), name="web page")
        if serving is not None:
            serving.add_done_callback(stop)
        with worker_process(directory, url) as worker:
            console.print(f"worker process {worker.pid} started")
            # Not wrapped: a terminal's own line break is not copied with the command.
            console.print(screen.beside(url), soft_wrap=True)
            await _watch(count, worker, directory, console)
        code = await _sum_up(enqueued, worker.returncode, console)
        if serving is not None:
            serving.remove_done_callback(stop)
            console.print("\nThe web page stays until Ctrl-C.")
            await serving
        return code
    finally:
        await app.aclose()


async def _enqueue(count: int, console: Console) -> Counter[str]:
    drafts = load.drafts(count)
    began = time.monotonic()
    handles = await app.aenqueue_many(drafts)
    took = time.monotonic() - began
    (again,) = await app.aenqueue_many([load.digest()])
    if not again.is_duplicate or again.id != handles[0].id:
        raise DemoFailed("a second enqueue with the same unique key did not return the first job")
    console.print(f"{count:,} jobs enqueued in {took * 1000:,.0f} ms")
    console.print("daily_digest enqueued again with its unique key: returned the first job")
    return Counter(draft.job.kind for draft in drafts)


async def _watch(count: int, worker: Popen[bytes], directory: Path, console: Console) -> None:
    with screen.progress(count, console) as show:
        latest, since = -1, time.monotonic()
        while True:
            counts = await _counts()
            show(counts)
            done = sum(counts[state] for state in FINISHED)
            if done >= count:
                return
            if worker.poll() is not None:
                problem = f"the worker ended with exit code {worker.returncode}"
                raise DemoFailed(problem, last_lines(directory))
            if done > latest:
                latest, since = done, time.monotonic()
            if time.monotonic() - since > _STALL_SECONDS:
                problem = f"no job has ended for {_STALL_SECONDS:.0f} s"
                raise DemoFailed(problem, last_lines(directory))
            await asyncio.sleep(_POLL_SECONDS)


async def _counts() -> Counts:
    counts: Counts = Counter()
    for each in await app.store.counts(most=_ALL):
        counts[each.state] += each.count
    return counts


async def _sum_up(enqueued: Counter[str], exit_code: int, console: Console) -> int:
    jobs = [job async for job in _all_jobs()]
    books = tally(enqueued, jobs)
    console.print()
    console.print(screen.summary(books))
    wrong = complaints(books, poison=import_feed.kind)
    if exit_code != 0:
        wrong.append(f"the worker exited with code {exit_code} after SIGTERM")
    if wrong:
        raise DemoFailed("the figures do not add up: " + "; ".join(wrong))
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
