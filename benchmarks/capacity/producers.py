"""Owns what enqueues take, and what PostgreSQL's own settings change about enqueues and runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table, spread
from benchmarks.capacity.watch import Figures, Rounds, watch_to_the_end
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
        rows.append(_row(survey, "PostgreSQL, one by one", yard, singles, _singly))
        together = partial(_singly, threads=_THREADS)
        rows.append(_row(survey, f"PostgreSQL, {_THREADS} threads", yard, singles * 2, together))
        rows.append(_row(survey, "PostgreSQL, in bulk", yard, survey.sizes.jobs, _in_bulk))
    with survey.site.sqlite() as file:
        rows.append(_row(survey, "SQLite, one by one", file, singles, _singly))
        rows.append(_row(survey, "SQLite, in bulk", file, survey.sizes.jobs, _in_bulk))
    head = ["enqueue", "jobs/s", "server CPU, µs/job", "WAL, B/job"]
    return [Table(name="enqueues", head=head, rows=rows)]


def _row(
    survey: Survey, shown: str, yard: Yard, jobs: int, enqueue: Callable[[Yard, int], float]
) -> list[Cell]:
    """Enqueue so many, in rounds; tell the rates, and what each job takes."""
    rounds = survey.sizes.rounds
    count = max(jobs // rounds, _THREADS)
    log, cpu = yard.wal(), yard.server_cpu()
    rates = spread([enqueue(yard, count) for _ in range(rounds)])
    log, cpu = yard.wal() - log, yard.server_cpu() - cpu
    if not log:
        return [shown, rates, None, None]
    return [shown, rates, cpu / (count * rounds) * 1e6, log / (count * rounds)]


def _in_bulk(yard: Yard, count: int) -> float:
    """Enqueue in few commits; return the rate."""
    began = time.monotonic()
    fill(yard, count)
    return count / (time.monotonic() - began)


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
    runs = _runs(survey, ((), (_NOT_SYNCHRONOUS,), ("CHECKPOINT",)))
    rows: list[list[Cell]] = [
        ["as `initdb` leaves it", singly[0], together[0], *runs[0]],
        ["`synchronous_commit = off`", singly[1], together[1], *runs[1]],
        ["a checkpoint between enqueue and run", None, None, *runs[2]],
    ]
    return [Table(name="server", head=_OF_SERVER, rows=rows)]


def _in_turns(survey: Survey, yards: Sequence[Yard], threads: int) -> list[str]:
    """Enqueue by turns, since a disk's mood changes within seconds; return the rates of each."""
    count = max(survey.sizes.singles // _BURSTS, threads)
    bursts = [[_singly(yard, count, threads) for yard in yards] for _ in range(_BURSTS)]
    return [spread(rates) for rates in zip(*bursts, strict=True)]


def _runs(survey: Survey, cases: Sequence[tuple[str, ...]]) -> list[tuple[str, float]]:
    """Run what was enqueued by turns, each after its statements; return rates and log of each."""
    turns = [[_run(survey, first) for first in cases] for _ in range(survey.sizes.rounds)]
    found = [Rounds(each) for each in zip(*turns, strict=True)]
    return [(rounds.rates, rounds.whole.wal_bytes) for rounds in found]


def _run(survey: Survey, first: tuple[str, ...]) -> Figures:
    with survey.site.postgres() as yard:
        fill(yard, survey.sizes.jobs // 4)
        yard.tell(*first)
        with crew(yard.url) as it:
            return watch_to_the_end(yard, it)
