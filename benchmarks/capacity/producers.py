"""Owns what enqueues take, and what PostgreSQL's own settings change about enqueues and runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import watch_to_the_end
from benchmarks.capacity.yards import PostgresYard, Yard, fill
from windlass import Kind, Windlass

_WARM_UPS = 20
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
    """Change a setting of PostgreSQL, and see what comes of it."""
    cases: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
        ("as `initdb` leaves it", (), ()),
        ("`synchronous_commit = off`", (_NOT_SYNCHRONOUS,), ()),
        ("a checkpoint between enqueue and run", (), ("CHECKPOINT",)),
    )
    rows: list[list[Cell]] = []
    for shown, before, between in cases:
        survey.tell(f"PostgreSQL, {shown}")
        with survey.site.postgres() as yard:
            yard.tell(*before)
            rows.append([shown, *_enqueued_and_run(survey, yard, between)])
    head = [
        "setting",
        "enqueues/s, one by one",
        "enqueues/s, 16 threads",
        "run, jobs/s",
        "WAL of the run, B/job",
    ]
    return [Table(name="server", head=head, rows=rows)]


def _enqueued_and_run(survey: Survey, yard: PostgresYard, between: tuple[str, ...]) -> list[Cell]:
    singles = survey.sizes.singles // 2
    singly = _singly(yard, singles)
    together = _singly(yard, singles * 2, _THREADS)
    fill(yard, survey.sizes.jobs)
    yard.tell(*between)
    with crew(yard.url) as it:
        found = watch_to_the_end(yard, it)
    return [singly, together, found.rate, found.wal_bytes]
