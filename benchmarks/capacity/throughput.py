"""Owns what crews get done: by slots and processes, by how long jobs wait, by kind of handler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import Figures, serving, watch
from benchmarks.capacity.yards import Yard

Making = Callable[[], AbstractContextManager[Yard]]
_OF_FEW_SLOTS = {1: 0.1, 10: 0.5}
"""The share of the fastest rate that so few slots reach at most."""
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
    "of slots / duration",
    "worker CPU, µs/job",
    "server CPU, µs/job",
    "CPU in use by the worker",
)
_HANDLERS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("`async def`, 100 slots", "noop", {}),
    ("`def`, 2 threads", "threaded", {"threads": 2}),
    ("`def`, 20 threads", "threaded", {"threads": 20}),
    ("`def`, isolated, 2 children", "isolated", {"children": 2}),
)


def throughput(survey: Survey) -> list[Table]:
    """Run no-ops in more and more slots and processes, on both stores."""
    rows: list[list[Cell]] = []
    raw: list[dict[str, Cell]] = []
    for processes in survey.sizes.processes:
        for slots in survey.sizes.slots:
            survey.tell(f"no-ops, {processes} x {slots} slots")
            on_postgres = _noops(survey, survey.site.postgres, processes, slots)
            on_sqlite = _noops(survey, survey.site.sqlite, processes, slots, _OF_A_FILE)
            of_postgres = (on_postgres.rate, on_postgres.worker_micros, on_postgres.server_micros)
            of_sqlite = (on_sqlite.rate, on_sqlite.worker_micros)
            rows.append([processes, slots, *of_postgres, *of_sqlite])
            raw.append(on_postgres.raw(f"PostgreSQL, {processes} x {slots}"))
            raw.append(on_sqlite.raw(f"SQLite, {processes} x {slots}"))
    return [Table(name="throughput", head=_OF_NOOPS, rows=rows, raw=raw)]


def _noops(
    survey: Survey, making: Making, processes: int, slots: int, most: float = 1.0
) -> Figures:
    share = min(_OF_FEW_SLOTS.get(slots, 1.0) * processes, most)
    jobs = int(survey.sizes.rates * share * (survey.sizes.seconds + 1))
    with making() as yard, crew(yard.url, slots=slots, processes=processes) as it:
        serving(yard, it, processes)
        return watch(yard, it, jobs=jobs, seconds=survey.sizes.seconds)


def naps(survey: Survey) -> list[Table]:
    """Run jobs that wait, in more and more slots of one process."""
    rows: list[list[Cell]] = []
    raw: list[dict[str, Cell]] = []
    for ms in survey.sizes.naps:
        for slots in survey.sizes.napping_slots:
            survey.tell(f"{ms} ms jobs, {slots} slots")
            ideal = slots * 1000 / ms
            found = _nap(survey, ms, slots, ideal)
            share, cpu = found.rate / ideal, found.worker_cpu / found.seconds
            costs = (found.worker_micros, found.server_micros)
            rows.append([f"{ms} ms", slots, found.rate, f"{share:.0%}", *costs, f"{cpu:.0%}"])
            raw.append(found.raw(f"{ms} ms, {slots} slots"))
    return [Table(name="naps", head=_OF_NAPS, rows=rows, raw=raw)]


def _nap(survey: Survey, ms: int, slots: int, ideal: float) -> Figures:
    seconds = survey.sizes.seconds
    jobs = int(min(ideal, survey.sizes.rates) * (seconds + 1)) + slots
    with survey.site.postgres() as yard, crew(yard.url, slots=slots) as it:
        serving(yard, it)
        return watch(yard, it, jobs=jobs, seconds=seconds, kind="nap", payload={"ms": ms})


def handlers(survey: Survey) -> list[Table]:
    """Run no-ops in the event loop, in threads and in child processes."""
    rows: list[list[Cell]] = []
    raw: list[dict[str, Cell]] = []
    for shown, kind, flags in _HANDLERS:
        survey.tell(f"handlers, {shown}")
        jobs = int(survey.sizes.rates * (survey.sizes.seconds + 1) / (1 if kind == "noop" else 4))
        with survey.site.postgres() as yard, crew(yard.url, **flags) as it:
            serving(yard, it)
            found = watch(yard, it, jobs=jobs, seconds=survey.sizes.seconds, kind=kind)
        rows.append([shown, found.rate, found.worker_micros, found.server_micros])
        raw.append(found.raw(shown))
    head = ["handler", "no-ops/s", "worker CPU, µs/job", "server CPU, µs/job"]
    return [Table(name="handlers", head=head, rows=rows, raw=raw)]
