"""Owns what crews get done: by slots and processes, by how long jobs wait, by kind of handler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import Rounds, serving, watch
from benchmarks.capacity.yards import Yard

Making = Callable[[], AbstractContextManager[Yard]]
_OF_ONE_SLOT = 0.02
"""The share of the fastest rate that a single slot reaches at most."""
_OF_A_FILE = 0.5
"""And the share that a file does."""
_OF_NOOPS = (
    "processes",
    "slots of each",
    "PostgreSQL, jobs/s",
    "worker CPU, µs/job",
    "server CPU, µs/job",
    "SQLite, jobs/s",
    "worker CPU, µs/job",
)
_OF_NAPS = (
    "a job waits",
    "slots",
    "jobs/s",
    "overhead of a slot, ms",
    "worker CPU, µs/job",
    "server CPU, µs/job",
    "CPU in use by the worker",
)
_HANDLERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("`async def`, 100 slots", "noop", {}),
    ("the same, with metrics, and logs at `info` in a file", "noop", {"quiet": False}),
    ("`def`, 2 threads", "threaded", {"threads": 2}),
    ("`def`, 20 threads", "threaded", {"threads": 20}),
    ("`def`, isolated, 2 children", "isolated", {"isolated_processes": 2}),
)


def throughput(survey: Survey) -> list[Table]:
    """Run no-ops in more and more slots and processes, on both stores."""
    rows: list[list[Cell]] = []
    raw: list[dict[str, Cell]] = []
    for processes in survey.sizes.processes:
        for slots in survey.sizes.slots:
            if processes > 1 and slots < survey.sizes.many_slots:
                continue
            survey.tell(f"no-ops, {processes} x {slots} slots")
            on_postgres = _noops(survey, survey.site.postgres, processes, slots)
            on_sqlite = _noops(survey, survey.site.sqlite, processes, slots, _OF_A_FILE)
            of_postgres = (on_postgres.rates, *_costs(on_postgres))
            of_sqlite = (on_sqlite.rates, on_sqlite.whole.worker_micros)
            rows.append([processes, slots, *of_postgres, *of_sqlite])
            raw += on_postgres.raw(f"PostgreSQL, {processes} x {slots}")
            raw += on_sqlite.raw(f"SQLite, {processes} x {slots}")
    return [Table(name="throughput", head=_OF_NOOPS, rows=rows, raw=raw)]


def _costs(found: Rounds) -> tuple[float, float]:
    return found.whole.worker_micros, found.whole.server_micros


def _noops(survey: Survey, making: Making, processes: int, slots: int, most: float = 1.0) -> Rounds:
    sizes = survey.sizes
    jobs = sizes.enough(sizes.rates * (_OF_ONE_SLOT if slots == 1 else most))
    with making() as yard, crew(yard.url, concurrency=slots, processes=processes) as it:
        serving(yard, it, processes)
        return watch(yard, it, jobs=jobs, seconds=sizes.seconds, rounds=sizes.rounds)


def naps(survey: Survey) -> list[Table]:
    """Run jobs that wait, in more and more slots of one process."""
    rows: list[list[Cell]] = []
    raw: list[dict[str, Cell]] = []
    for ms in survey.sizes.naps:
        for slots in survey.sizes.napping_slots:
            survey.tell(f"{ms} ms jobs, {slots} slots")
            found = _nap(survey, ms, slots)
            # By Little's law: all slots are taken, so each is for slots / rate at a time.
            besides = max(slots / found.rate * 1000 - ms, 0.0)
            cpu = found.whole.worker_cpu / found.whole.seconds
            rows.append([f"{ms} ms", slots, found.rates, besides, *_costs(found), f"{cpu:.0%}"])
            raw += found.raw(f"{ms} ms, {slots} slots")
    return [Table(name="naps", head=_OF_NAPS, rows=rows, raw=raw)]


def _nap(survey: Survey, ms: int, slots: int) -> Rounds:
    sizes = survey.sizes
    # Jobs that wait end in waves, and a round that has few of these is off by one of them.
    seconds = sizes.seconds * 2
    jobs = sizes.enough(min(slots * 1000 / ms, sizes.rates), seconds) + slots
    with survey.site.postgres() as yard, crew(yard.url, concurrency=slots) as it:
        serving(yard, it)
        return watch(
            yard,
            it,
            jobs=jobs,
            seconds=seconds,
            rounds=sizes.rounds,
            kind="nap",
            payload={"ms": ms},
        )


def handlers(survey: Survey) -> list[Table]:
    """Run no-ops in the event loop, in threads and in child processes."""
    sizes = survey.sizes
    rows: list[list[Cell]] = []
    raw: list[dict[str, Cell]] = []
    for shown, kind, flags in _HANDLERS:
        survey.tell(f"handlers, {shown}")
        jobs = sizes.enough(sizes.rates / (1 if kind == "noop" else 4))
        with survey.site.postgres() as yard, crew(yard.url, **flags) as it:
            serving(yard, it)
            found = watch(
                yard, it, jobs=jobs, seconds=sizes.seconds, rounds=sizes.rounds, kind=kind
            )
        rows.append([shown, found.rates, *_costs(found)])
        raw += found.raw(shown)
    head = ["handler", "no-ops/s", "worker CPU, µs/job", "server CPU, µs/job"]
    return [Table(name="handlers", head=head, rows=rows, raw=raw)]
