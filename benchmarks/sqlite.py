"""Owns the race on SQLite: Windlass against Huey, both durable, in one run on one disk.

`python -m benchmarks.sqlite` exits with 1 if a bar is missed. It asserts ratios, never seconds: two
figures from the same minute of the same machine can be compared, and nothing else can.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from benchmarks.contender import Contender
from benchmarks.measure import enqueue_singly, fill_and_drain, latency
from benchmarks.peers.huey_sqlite import HueySqlite
from benchmarks.peers.windlass_sqlite import WindlassSqlite
from benchmarks.report import Measure, Race, Report, Rival, Score

T = TypeVar("T")
OURS, THEIRS = WindlassSqlite, HueySqlite
DRAIN = Measure(name="drain", unit="jobs/s")
TWO = Measure(name="drain, two processes", unit="jobs/s")
BULK = Measure(name="bulk enqueue", unit="jobs/s")
SINGLE = Measure(name="single enqueue", unit="jobs/s")
P50 = Measure(name="latency p50", unit="ms", lower_is_better=True)
P99 = Measure(name="latency p99", unit="ms", lower_is_better=True)
BARS = {DRAIN: 5.0, BULK: 20.0, SINGLE: 1.0, P50: 1.0}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything a round does."""

    rounds: int
    jobs: int
    singles: int
    latencies: int

    def __str__(self) -> str:
        return (
            f"medians of {self.rounds} rounds: {self.jobs:,} jobs filled and drained, "
            f"{self.singles:,} enqueued singly, {self.latencies:,} sent one each 20 ms"
        )


def main() -> int:
    """Race, report, and return the exit code."""
    options = _options()
    sizes = _sizes(options)
    report = Report(
        title="SQLite, durable",
        races=_race(sizes, options.directory, Console(stderr=True)),
        environment={
            "sqlite": sqlite3.sqlite_version,
            "directory": str(options.directory),
            "sizes": str(sizes),
            OURS.name: OURS.settings,
            THEIRS.name: THEIRS.settings,
        },
    )
    report.show(Console())
    if options.json is not None:
        report.write(options.json)
    return 0 if report.is_met else 1


def _race(sizes: Sizes, within: Path, progress: Console) -> list[Race]:
    def rounds(what: str, measure: Callable[[type[Contender]], T]) -> tuple[list[T], list[T]]:
        """Measure both in turn, so that whatever else the machine does falls on both alike."""
        ours, theirs = [], []
        for number in range(sizes.rounds):
            progress.print(f"[dim]{what}, round {number + 1} of {sizes.rounds}[/]")
            ours.append(measure(OURS))
            theirs.append(measure(THEIRS))
        return ours, theirs

    filled, huey_filled = rounds("drain", lambda it: fill_and_drain(it, within, sizes.jobs))
    two = []
    for number in range(sizes.rounds):
        progress.print(f"[dim]two processes, round {number + 1} of {sizes.rounds}[/]")
        two.append(
            [fill_and_drain(OURS, within, 3 * sizes.jobs, processes=n).drain for n in (1, 2)]
        )
    singles = []
    for number in range(sizes.rounds):
        progress.print(f"[dim]single enqueue, round {number + 1} of {sizes.rounds}[/]")
        singles.append(enqueue_singly((OURS, THEIRS), within, sizes.singles))
    waits, huey_waits = rounds("latency", lambda it: latency(it, within, sizes.latencies))
    return [
        _held(DRAIN, [it.drain for it in filled], [it.drain for it in huey_filled]),
        Race(
            measure=TWO,
            ours=Score(name=f"{OURS.name}, two processes", rounds=[both for _, both in two]),
            rivals=[
                Rival(score=Score(name="one process", rounds=[one for one, _ in two]), bar=1.3)
            ],
        ),
        _held(BULK, [it.bulk for it in filled], [it.bulk for it in huey_filled]),
        _held(SINGLE, [ours for ours, _ in singles], [theirs for _, theirs in singles]),
        _held(P50, [it.p50 for it in waits], [it.p50 for it in huey_waits]),
        _held(P99, [it.p99 for it in waits], [it.p99 for it in huey_waits]),
    ]


def _held(measure: Measure, ours: Sequence[float], theirs: Sequence[float]) -> Race:
    """Hold ours against theirs."""
    rival = Rival(score=Score(name=THEIRS.name, rounds=theirs), bar=BARS.get(measure))
    return Race(measure=measure, ours=Score(name=OURS.name, rounds=ours), rivals=[rival])


def _sizes(options: argparse.Namespace) -> Sizes:
    if options.quick:
        return Sizes(rounds=options.rounds, jobs=options.jobs or 2_000, singles=500, latencies=200)
    return Sizes(rounds=options.rounds, jobs=options.jobs or 10_000, singles=5_000, latencies=500)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sqlite", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each, in turn (3)")
    parser.add_argument("--jobs", type=int, help="to fill and drain (10000; 2000 if quick)")
    parser.add_argument("--quick", action="store_true", help="a fraction of everything")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the databases are made, on a real disk (/var/tmp)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
