"""Owns how a contender is measured: which processes there are, and from when to when time counts.

Every measure begins with an empty directory, and with fresh processes, so that nothing that one
round leaves behind (threads, garbage, a grown log) is carried into the next.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender
from benchmarks.report import percentile

_spawning = multiprocessing.get_context("spawn")
_PATIENCE = 300.0
_LOOK = 0.002
_WARM_UPS = 50
_BURSTS = 20
_SETTLING = 0.5
_INTERVAL = 0.02


@dataclass(frozen=True, kw_only=True)
class Filled:
    """One bulk enqueue, and the drain of what it brought: jobs a second."""

    bulk: float
    drain: float


@dataclass(frozen=True, kw_only=True)
class Latency:
    """From just before the enqueue call to the handler's first line, in milliseconds."""

    p50: float
    p99: float


def fill_and_drain(
    contender: type[Contender], within: Path, jobs: int, *, processes: int = 1
) -> Filled:
    """Fill a queue by its bulk call, then let worker processes empty it."""
    with _room(within) as directory, ExitStack() as stack:
        taken = _in_process(_fill, contender, directory, jobs)
        workers = [stack.enter_context(_worker(contender, directory)) for _ in range(processes)]
        _checkpoint(workers[0].file)
        for worker in workers:
            worker.go()
        emptied = workers[0].wait_until_empty()
        starts = sorted(start for worker in workers for start in worker.stop())
        if len(starts) != jobs:
            raise RuntimeError(f"{contender.name} ran {len(starts)} of {jobs} jobs")
        # A queue that forgets a job before it runs it is not done before it has run the last.
        ended = max(emptied, starts[-1])
        return Filled(bulk=jobs / taken, drain=jobs / ((ended - starts[0]) / 1e9))


def enqueue_singly(
    contenders: Sequence[type[Contender]], within: Path, jobs: int
) -> tuple[float, ...]:
    """Enqueue jobs one by one, each committed before the next: jobs a second, of each contender.

    They take turns in bursts, since a disk's mood changes faster than a whole round goes by.
    """
    with ExitStack() as stack:
        producers = [
            stack.enter_context(_producer(contender, stack.enter_context(_room(within))))
            for contender in contenders
        ]
        seconds = [0.0] * len(producers)
        for _ in range(_BURSTS):
            for number, enqueue in enumerate(producers):
                seconds[number] += enqueue(jobs // _BURSTS)
    return tuple(jobs // _BURSTS * _BURSTS / taken for taken in seconds)


def latency(contender: type[Contender], within: Path, jobs: int) -> Latency:
    """Send one job each 20 ms to an idle worker in another process."""
    with _room(within) as directory, _worker(contender, directory) as worker:
        worker.go()
        _in_process(_send_slowly, contender, directory, jobs)
        worker.wait_until_empty()
        waits = [wait / 1e6 for wait in worker.stop()[_WARM_UPS:]]
    if len(waits) != jobs:
        raise RuntimeError(f"{contender.name} ran {len(waits)} of {jobs} jobs")
    return Latency(p50=statistics.median(waits), p99=percentile(waits, 0.99))


# -- what producers do, each in a process of its own -----------------------------------------------


def _fill(contender: type[Contender], directory: Path, jobs: int) -> float:
    with closing(contender(directory, [])) as queue:
        queue.enqueue_bulk(1)  # The file is made, the connection opened, every import done.
        began = time.perf_counter()
        queue.enqueue_bulk(jobs - 1)
        return time.perf_counter() - began


def _send_slowly(contender: type[Contender], directory: Path, jobs: int) -> float:
    with closing(contender(directory, [])) as queue:
        for _ in range(_WARM_UPS):
            queue.enqueue_stamped()
        time.sleep(_SETTLING)
        began = time.perf_counter()
        for number in range(jobs):
            time.sleep(max(began + number * _INTERVAL - time.perf_counter(), 0))
            queue.enqueue_stamped()
        return time.perf_counter() - began


def _in_process(
    work: Callable[[type[Contender], Path, int], float],
    contender: type[Contender],
    directory: Path,
    jobs: int,
) -> float:
    """Run one of the functions above in a fresh process, and return the seconds it counted."""
    ours, theirs = _spawning.Pipe()
    process = _spawning.Process(target=_tell, args=(theirs, work, contender, directory, jobs))
    process.start()
    theirs.close()
    try:
        seconds: float = _hear(ours, contender)
        return seconds
    finally:
        process.join()


def _tell(pipe: Connection[Any, Any], work: Callable[..., float], *args: object) -> None:
    pipe.send(work(*args))


@contextmanager
def _producer(contender: type[Contender], directory: Path) -> Iterator[Callable[[int], float]]:
    """Start a process that enqueues so many jobs whenever told to, and says how long it took."""
    ours, theirs = _spawning.Pipe()
    process = _spawning.Process(target=_enqueue_bursts, args=(theirs, contender, directory))
    process.start()
    theirs.close()

    def enqueue(jobs: int) -> float:
        ours.send(jobs)
        seconds: float = _hear(ours, contender)
        return seconds

    try:
        enqueue(_WARM_UPS)
        yield enqueue
        ours.send(0)
        process.join(_PATIENCE)
    finally:
        process.kill()
        process.join()


def _enqueue_bursts(
    pipe: Connection[Any, Any], contender: type[Contender], directory: Path
) -> None:
    with closing(contender(directory, [])) as queue:
        while jobs := pipe.recv():
            began = time.perf_counter()
            for _ in range(jobs):
                queue.enqueue()
            pipe.send(time.perf_counter() - began)


# -- the worker process ----------------------------------------------------------------------------


class _Worker:
    """A worker process, as the one who started it sees it."""

    def __init__(self, contender: type[Contender], directory: Path) -> None:
        self._contender = contender
        self._pipe, theirs = _spawning.Pipe()
        self.process: SpawnProcess = _spawning.Process(
            target=_work, args=(theirs, contender, directory), daemon=True
        )
        self.process.start()
        theirs.close()
        self.file: Path = _hear(self._pipe, contender)

    def go(self) -> None:
        """Let it through the barrier at which it waits, with all its imports done."""
        self._pipe.send(None)

    def wait_until_empty(self) -> int:
        """Return the moment at which the queue's own tables show nothing left."""
        patience = time.monotonic() + _PATIENCE
        with closing(sqlite3.connect(self.file, isolation_level=None)) as db:
            while db.execute(self._contender.left).fetchone()[0]:
                if not self.process.is_alive() or time.monotonic() > patience:
                    raise RuntimeError(f"{self._contender.name}'s worker does not empty its queue")
                time.sleep(_LOOK)
            return time.monotonic_ns()

    def stop(self) -> list[int]:
        """End it, and return what its handlers recorded."""
        os.kill(self.process.pid or 0, signal.SIGINT)
        starts: list[int] = _hear(self._pipe, self._contender)
        return starts


@contextmanager
def _worker(contender: type[Contender], directory: Path) -> Iterator[_Worker]:
    worker = _Worker(contender, directory)
    try:
        yield worker
        worker.process.join(_PATIENCE)
    finally:
        worker.process.kill()
        worker.process.join()


def _work(pipe: Connection[Any, Any], contender: type[Contender], directory: Path) -> None:
    starts: list[int] = []
    queue = contender(directory, starts)
    pipe.send(queue.file)
    pipe.recv()
    queue.work()
    pipe.send(starts)
    queue.close()


def _hear(pipe: Connection[Any, Any], contender: type[Contender]) -> Any:
    try:
        if pipe.poll(_PATIENCE):
            return pipe.recv()
    except EOFError:
        raise RuntimeError(f"a process of {contender.name} died; it says above why") from None
    raise RuntimeError(f"a process of {contender.name} has not answered for {_PATIENCE:g} s")


# -- the directory ---------------------------------------------------------------------------------


@contextmanager
def _room(within: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="windlass-bench-", dir=within))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _checkpoint(file: Path) -> None:
    """Bring the log into the file, so that no drain pays for what the fill left to do."""
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
