"""Owns what jobs take of a disk and its log: by payload, while they wait, and afterwards."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import watch_to_the_end
from benchmarks.capacity.yards import PostgresYard, Yard, fill
from windlass import Windlass
from windlass.core.jobs.queries import Retention

_WHOLE_DAYS = Retention(finished=timedelta(days=7))
_LESS_THAN_A_DAY = Retention(finished=timedelta(0))
_NOTHING_GOES = Retention(finished=timedelta(days=29))
_AT_ONCE = 1_000
_LEFT_IN_FILE = "SELECT EXISTS (SELECT 1 FROM jobs)"
_OF_WORK = (
    "payload",
    "enqueue: server CPU, µs/job",
    "enqueue: WAL, B/job",
    "run: worker CPU, µs/job",
    "run: server CPU, µs/job",
    "run: WAL, B/job",
)
_PARTS = ("rows", "TOAST", "indexes", "in all")
_OF_ROOM = (
    "payload, B/job",
    *(f"waiting: {part}" for part in _PARTS),
    "dead, besides, until a vacuum",
    *(f"finished: {part}" for part in _PARTS),
)
_LEFT_ALONE = "ALTER TABLE windlass.jobs SET (autovacuum_enabled = off)"
"""Else vacuum may come by between the run and the look, and give an empty table's room back."""
_AGED = """
    UPDATE windlass.finished_jobs SET finished_at = finished_at - interval '10 days',
        slot = windlass.slot_of(finished_at - interval '10 days')
"""
_DAYS = "PostgreSQL, 1 to 30 days: a day at once"
_ROWS = "PostgreSQL, less than a day, or 30 and more: row by row"
_OF_RETENTION = ("retention", "what goes", "time, ms", "server CPU, ms", "WAL, kB")


def payloads(survey: Survey) -> list[Table]:
    """Enqueue and run jobs with larger and larger payloads, and measure what they leave behind."""
    work: list[list[Cell]] = []
    room: list[list[Cell]] = []
    for size in survey.sizes.payloads:
        survey.tell(f"payloads of {size:,} bytes")
        jobs = max(min(survey.sizes.jobs, survey.sizes.payload_bytes // size), 1)
        with survey.site.postgres() as yard:
            yard.tell(_LEFT_ALONE)
            empty = yard.size("finished_jobs")  # Partitions that hold nothing have pages, too.
            log, cpu, waiting = _enqueued(yard, jobs, size)
            with crew(yard.url) as it:
                run = watch_to_the_end(yard, it)
            dead = sum(yard.size("jobs")) / jobs - sum(waiting)
            full = yard.size("finished_jobs")
            done = [(now - then) / jobs for now, then in zip(full, empty, strict=True)]
        shown = f"{size:,} B"
        of_run = (run.worker_micros, run.server_micros, run.wal_bytes)
        work.append([shown, cpu, log, *of_run])
        room.append([shown, *waiting, sum(waiting), dead, *done, sum(done)])
    return [
        Table(name="payloads", head=_OF_WORK, rows=work),
        Table(name="space", head=_OF_ROOM, rows=room),
    ]


def _enqueued(yard: PostgresYard, jobs: int, size: int) -> tuple[float, float, list[float]]:
    """Enqueue in bulk; return the log, the server's CPU in microseconds, and the room of a job."""
    yard.tell("CHECKPOINT")
    log, cpu = yard.wal(), yard.server_cpu()
    fill(yard, jobs, "carry", {"text": noise(size)})
    log, cpu = yard.wal() - log, yard.server_cpu() - cpu
    return log / jobs, cpu / jobs * 1e6, [each / jobs for each in yard.size("jobs")]


def noise(size: int) -> str:
    """Return text that can hardly be compressed, for which nobody has to thank the compressor."""
    return base64.b85encode(random.Random(size).randbytes(size)).decode()[:size]


def retention(survey: Survey) -> list[Table]:
    """Delete finished jobs: days as a whole, row by row, and row by row from a file."""
    jobs = survey.sizes.jobs
    # A day goes as a whole, so that a figure for each job would tell nothing.
    day, thousand, strokes = f"a day of {jobs:,} jobs", f"{_AT_ONCE:,} jobs", jobs / _AT_ONCE
    rows: list[list[Cell]] = [
        [_DAYS, day, *_pruned(survey, _DAYS, _WHOLE_DAYS, _AGED)],
        [
            _ROWS,
            thousand,
            *(each / strokes for each in _pruned(survey, _ROWS, _LESS_THAN_A_DAY)),
        ],
    ]
    with survey.site.sqlite() as file:
        survey.tell("retention, SQLite")
        _finish(file, jobs)
        seconds = _prune(file, _LESS_THAN_A_DAY, lambda: bool(file.row(_LEFT_IN_FILE)[0]))
        rows.append(["SQLite: row by row", thousand, seconds / strokes * 1e3, None, None])
    return [Table(name="retention", head=_OF_RETENTION, rows=rows)]


def _pruned(survey: Survey, shown: str, kept: Retention, *first: str) -> Iterator[float]:
    """Delete all, after some statements; yield the milliseconds, those of the CPU, and the log."""
    survey.tell(f"retention, {shown}")
    with survey.site.postgres() as yard:
        _finish(yard, survey.sizes.jobs)
        yard.tell(*first, "VACUUM ANALYZE", "CHECKPOINT")
        log, cpu = yard.wal(), yard.server_cpu()
        yield _prune(yard, kept, partial(_has_finished, yard)) * 1e3
        yield (yard.server_cpu() - cpu) * 1e3
        yield (yard.wal() - log) / 1e3


def _has_finished(yard: PostgresYard) -> bool:
    return bool(yard.ask("SELECT EXISTS (SELECT FROM windlass.finished_jobs)"))


def _finish(yard: Yard, jobs: int) -> None:
    fill(yard, jobs)
    with crew(yard.url) as it:
        watch_to_the_end(yard, it)


def _prune(yard: Yard, kept: Retention, is_left: Callable[[], bool]) -> float:
    """Delete as workers do, until nothing is left; return the seconds."""

    async def prune() -> float:
        app = Windlass(yard.url)
        await app.store.prune(_NOTHING_GOES, _AT_ONCE)  # Connects.
        loop = asyncio.get_running_loop()
        began = loop.time()
        while is_left():
            await app.store.prune(kept, _AT_ONCE)
        taken = loop.time() - began
        await app.aclose()
        return taken

    return asyncio.run(prune())
