"""Owns what enqueues take, and what PostgreSQL's own settings change about enqueues and runs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import watch_to_the_end
from benchmarks.capacity.yards import Yard, fill
from windlass import Kind, Windlass

_WARM_UPS = 20
_BURSTS = 9
_OF_SERVER = (
    "setting",
    "enqueues/s, one by one",
    "enqueues/s, 16 threads",
    "run, jobs/s",
    "run: WAL, B/job",
)
_THREADS = 16
_NOT_SYNCHRONOUS = """
    DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
    END $$
"""


def enqueues(survey: Survey) -> list[Table]:
    """Enqueue one by one, from many threads, and in bulk."""
    singles = survey.sizes.singles
    survey.tell("enqueues")
    rows: list[list[Cell]] = []
    with survey.site.postgres() as yard:
        rows.append(_row("PostgreSQL, one by one", yard, singles, lambda: _singly(yard, singles)))
        many = singles * 2
        shown = f"PostgreSQL, {_THREADS} threads"
        rows.append(_row(shown, yard, many, lambda: _singly(yard, many, _THREADS)))
        jobs = survey.sizes.jobs
        rows.append(_row("PostgreSQL, in bulk", yard, jobs, lambda: fill(yard, jobs)))
    with survey.site.sqlite() as file:
        rows.append(_row("SQLite, one by one", file, singles, lambda: _singly(file, singles)))
        rows.append(_row("SQLite, in bulk", file, jobs, lambda: fill(file, jobs)))
    head = ["enqueue", "jobs/s", "server CPU, µs/job", "WAL, B/job"]
    return [Table(name="enqueues", head=head, rows=rows)]


def _row(shown: str, yard: Yard, jobs: int, enqueue: Callable[[], object]) -> list[Cell]:
    log, cpu, began = yard.wal(), yard.server_cpu(), time.monotonic()
    enqueue()
    seconds = time.monotonic() - began
    log, cpu = yard.wal() - log, yard.server_cpu() - cpu
    if not log:
        return [shown, jobs / seconds, None, None]
    return [shown, jobs / seconds, cpu / jobs * 1e6, log / jobs]


def _singly(yard: Yard, count: int, threads: int = 1) -> float:
    """Enqueue one by one, each committed before the next of its thread; return the rate."""
    app = Windlass(yard.url)
    producer = app.of(Kind("noop", dict[str, str]))

    def enqueue(times: int) -> None:
        for _ in range(times):
            producer.enqueue({})

    enqueue(_WARM_UPS)
    clients = [threading.Thread(target=enqueue, args=(count // threads,)) for _ in range(threads)]
    began = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    rate = count / (time.monotonic() - began)
    app.close()
    return rate


def server(survey: Survey) -> list[Table]:
    """Change a setting of PostgreSQL, and see what comes of it for enqueues and for runs."""
    survey.tell("PostgreSQL's own settings")
    with survey.site.postgres() as on, survey.site.postgres() as off:
        off.tell(_NOT_SYNCHRONOUS)
        singly = _in_turns(survey, (on, off), threads=1)
        together = _in_turns(survey, (on, off), threads=_THREADS)
    rows: list[list[Cell]] = [
        ["as `initdb` leaves it", singly[0], together[0], *_run(survey, ())],
        ["`synchronous_commit = off`", singly[1], together[1], *_run(survey, (_NOT_SYNCHRONOUS,))],
        ["a checkpoint between enqueue and run", None, None, *_run(survey, ("CHECKPOINT",))],
    ]
    return [Table(name="server", head=_OF_SERVER, rows=rows)]


def _in_turns(survey: Survey, yards: Sequence[Yard], threads: int) -> list[float]:
    """Enqueue by turns, since a disk's mood changes within seconds; return the median rates."""
    count = max(survey.sizes.singles // _BURSTS, threads)
    bursts = [[_singly(yard, count, threads) for yard in yards] for _ in range(_BURSTS)]
    return [statistics.median(rates) for rates in zip(*bursts, strict=True)]


def _run(survey: Survey, first: tuple[str, ...]) -> tuple[float, float]:
    """Run what was enqueued, after some statements; return the rate and the log of a job."""
    with survey.site.postgres() as yard:
        fill(yard, survey.sizes.jobs)
        yard.tell(*first)
        with crew(yard.url) as it:
            found = watch_to_the_end(yard, it)
    return found.rate, found.wal_bytes
