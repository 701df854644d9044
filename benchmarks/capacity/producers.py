"""Owns what enqueues take, and what PostgreSQL's own settings change about enqueues and runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
        with _singly(yard) as enqueue:
            rows.append(_row(survey, "PostgreSQL, one by one", yard, singles, enqueue))
        with _singly(yard, _THREADS) as enqueue:
            shown = f"PostgreSQL, {_THREADS} threads"
            rows.append(_row(survey, shown, yard, singles * 2, enqueue))
        in_bulk = partial(_in_bulk, yard)
        rows.append(_row(survey, "PostgreSQL, in bulk", yard, survey.sizes.jobs, in_bulk))
    with survey.site.sqlite() as file:
        with _singly(file) as enqueue:
            rows.append(_row(survey, "SQLite, one by one", file, singles, enqueue))
        in_bulk = partial(_in_bulk, file)
        rows.append(_row(survey, "SQLite, in bulk", file, survey.sizes.jobs, in_bulk))
    head = ["enqueue", "jobs/s", "server CPU, µs/job", "WAL, B/job"]
    return [Table(name="enqueues", head=head, rows=rows)]


def _row(
    survey: Survey, shown: str, yard: Yard, jobs: int, enqueue: Callable[[int], float]
) -> list[Cell]:
    """Enqueue so many, in rounds; tell the rates, and what each job takes."""
    rounds = survey.sizes.rounds
    count = max(jobs // rounds, _THREADS)
    log, cpu = yard.wal(), yard.server_cpu()
    rates = spread([enqueue(count) for _ in range(rounds)])
    log, cpu = yard.wal() - log, yard.server_cpu() - cpu
    if not log:
        return [shown, rates, None, None]
    return [shown, rates, cpu / (count * rounds) * 1e6, log / (count * rounds)]


def _in_bulk(yard: Yard, count: int) -> float:
    """Enqueue in few commits; return the rate."""
    began = time.monotonic()
    fill(yard, count)
    return count / (time.monotonic() - began)


@contextmanager
def _singly(yard: Yard, threads: int = 1) -> Iterator[Callable[[int], float]]:
    """Give what enqueues so many, each committed before the next of its thread; it tells the rate.

    Connections are open by then: else a short round would be about them.
    """
    app = Windlass(yard.url)
    producer = app.producer(Kind("noop", dict[str, str]))

    def one_by_one(times: int) -> None:
        for _ in range(times):
            producer.enqueue({})

    def enqueue(count: int) -> float:
        share = (count // threads,)
        clients = [threading.Thread(target=one_by_one, args=share) for _ in range(threads)]
        began = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return share[0] * threads / (time.monotonic() - began)

    enqueue(_WARM_UPS * threads)
    try:
        yield enqueue
    finally:
        app.close()


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
    sizes = survey.sizes
    count = max(sizes.singles // _BURSTS, sizes.of_each_thread * threads)
    with ExitStack() as stack:
        ways = [stack.enter_context(_singly(yard, threads)) for yard in yards]
        bursts = [[enqueue(count) for enqueue in ways] for _ in range(_BURSTS)]
    return [spread(rates) for rates in zip(*bursts, strict=True)]


def _runs(survey: Survey, cases: Sequence[tuple[str, ...]]) -> list[tuple[str, float]]:
    """Run what was enqueued by turns, each after its statements; return rates and log of each."""
    turns = [[_run(survey, first) for first in cases] for _ in range(survey.sizes.rounds)]
    found = [Rounds(each) for each in zip(*turns, strict=True)]
    return [(rounds.rates, rounds.whole.wal_bytes) for rounds in found]


def _run(survey: Survey, first: tuple[str, ...]) -> Figures:
    with survey.site.postgres() as yard:
        fill(yard, survey.sizes.many)
        yard.tell(*first)
        with crew(yard.url) as it:
            return watch_to_the_end(yard, it)
