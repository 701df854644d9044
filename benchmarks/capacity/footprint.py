"""Owns what processes take without working: memory, and connections to the server."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from benchmarks.capacity import proc
from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import serving, watch
from benchmarks.capacity.yards import PostgresYard, fill, wait_for
from windlass import Kind, Windlass

_MIB = 2**20
_KIB = 2**10
_LONG = 3_600_000
_RUNNING = "SELECT count(*) FROM windlass.jobs WHERE state = 'running'"
_LOOK = 0.005
SETTLING = 2.0
"""Seconds in which a worker has opened whatever it needs to idle."""
CREWS = (
    ("`windlass worker`, idle", 1, ""),
    ("`windlass worker --processes 2`, idle", 2, ""),
    ("`windlass worker`, no-ops", 1, "noop"),
    ("`windlass worker`, 100 `async def` handlers that enqueue", 1, "produce"),
)
_THREADS = 50
_COROUTINES = 200


def memory(survey: Survey) -> list[Table]:
    """Weigh a crew: idle, after work, with its slots in use, and with children."""
    survey.tell("memory")
    rows: list[list[Cell]] = []
    sleepers = survey.sizes.sleepers
    with (
        survey.site.postgres() as yard,
        crew(yard.url, concurrency=sleepers, shutdown_timeout=0) as it,
    ):
        serving(yard, it)
        rows.append(_weighed("supervisor", [it.supervisor]))
        rows.append(_weighed("worker process, idle", it.workers))
        watch(yard, it, jobs=survey.sizes.jobs, seconds=survey.sizes.seconds)
        wait_for("the last job", yard.is_empty)
        rows.append(_weighed(f"worker process, after {survey.sizes.jobs:,} jobs", it.workers))
        # Not before: a connection grows with what it has planned and cached.
        rows.append(_weighed("PostgreSQL, a connection of it, after them", yard.backends()))
        before = proc.memory(it.workers[0]).own
        fill(yard, sleepers, "nap", {"ms": _LONG})
        wait_for("jobs that wait", lambda: yard.ask(_RUNNING) == sleepers)
        each = (proc.memory(it.workers[0]).own - before) / sleepers
        rows.append(["a slot in use, besides", None, f"{each / _KIB:.1f} KiB"])
    with survey.site.postgres() as yard, crew(yard.url, isolated_processes=2) as it:
        serving(yard, it)
        watch(yard, it, jobs=survey.sizes.jobs // 50, seconds=0.3, kind="isolated")
        rows.append(_weighed("child process, for isolated handlers", it.children))
    head = ["what", "resident, MiB", "its own, MiB"]
    return [Table(name="memory", head=head, rows=rows)]


def _weighed(shown: str, pids: list[int]) -> list[Cell]:
    found = [proc.memory(pid) for pid in pids]
    return [
        shown,
        statistics.mean(each.resident for each in found) / _MIB,
        statistics.mean(each.own for each in found) / _MIB,
    ]


def connections(survey: Survey) -> list[Table]:
    """Count the connections of crews and producers, at rest and at most."""
    rows = [*_of_crews(survey), *_of_producers(survey)]
    head = ("who", "connections, by `pg_stat_activity`", "at most", "of which a supervisor has")
    return [Table(name="connections", head=head, rows=rows)]


def _of_crews(survey: Survey) -> Iterator[list[Cell]]:
    for shown, processes, kind in CREWS:
        survey.tell(f"connections, {shown}")
        with survey.site.postgres() as yard, crew(yard.url, processes=processes) as it:
            serving(yard, it, processes)
            with _most(yard) as most:
                time.sleep(SETTLING)
                if kind:
                    fill(yard, survey.sizes.jobs // 10, kind)
                    wait_for("the last job", yard.is_empty)
            of_supervisor = proc.connections(it.supervisor, yard.port)
            yield [shown, len(yard.backends()), most(), of_supervisor]


def _of_producers(survey: Survey) -> Iterator[list[Cell]]:
    for shown, produce in PRODUCERS:
        survey.tell(f"connections, {shown}")
        with survey.site.postgres() as yard, _most(yard) as most, asyncio.Runner() as runner:
            app = Windlass(yard.url)
            produce(app, runner)
            yield [shown, len(yard.backends()), most(), None]
            runner.run(app.aclose())


def _one(app: Windlass, _: asyncio.Runner) -> None:
    app.producer(Kind("noop", dict[str, str])).enqueue({})


def _threads(app: Windlass, _: asyncio.Runner) -> None:
    producer = app.producer(Kind("noop", dict[str, str]))
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda _: producer.enqueue({}), range(_THREADS * 20)))


def _coroutines(app: Windlass, runner: asyncio.Runner) -> None:
    async def enqueue() -> None:
        producer = app.producer(Kind("noop", dict[str, str]))
        await asyncio.gather(*(producer.aenqueue({}) for _ in range(_COROUTINES)))

    runner.run(enqueue())


PRODUCERS = (
    ("producer, one thread", _one),
    (f"producer, {_THREADS} threads", _threads),
    (f"producer, {_COROUTINES} coroutines", _coroutines),
)
"""Who enqueues, and how."""


@contextmanager
def _most(yard: PostgresYard) -> Iterator[Callable[[], int]]:
    """Watch the connections to a database; what is given tells the most that there were."""
    found = [0]
    enough = threading.Event()

    def keep_looking() -> None:
        with yard.beside() as other:
            while not enough.wait(_LOOK):
                found[0] = max(found[0], len(other.backends()))

    looker = threading.Thread(target=keep_looking, daemon=True)
    looker.start()
    try:
        yield lambda: found[0]
    finally:
        enough.set()
        looker.join()
