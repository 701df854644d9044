"""Owns the measure of growth: whether a store with millions of jobs is as fast as a small one.

`python -m benchmarks.growth` fills two databases of one PostgreSQL, does the same in both in turn,
and prints ratios: drain, enqueue, sweep, promote, prune, and the commands that look. It empties
days of retention while jobs arrive, and tries many limit keys, schedules, workers and lanes. It
exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.capacity import proc
from benchmarks.capacity.others import Others
from benchmarks.growth import crowds, retention
from benchmarks.growth.crowds import Figure
from benchmarks.growth.fill import Sizes, fill
from benchmarks.growth.lanes import lanes
from benchmarks.growth.looks import looks
from benchmarks.growth.operations import Load, operations
from benchmarks.growth.report import Pair, Report
from benchmarks.growth.retention import Window
from benchmarks.growth.stage import Measure, Sample, Stage
from tests.support.postgres.server import Server

Tell = Callable[[str], None]
Crowd = Callable[[Stage], Awaitable[Sequence[Figure]]]
SMALL = Sizes(finished=7_000, dead=1_000, scheduled=1_000, pending=1_000)
"""Ten thousand in all, and as many queues: growth of jobs is measured, not of queues."""
_WHOLE_DAYS = 6
_LOOK_ROUNDS = 3
"""Rounds of each command, whose start takes most of the time."""
PARTS = ("operations", "looks", "retention", "crowds")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large the grown store is, and how much is done in it."""

    grown: Sizes
    load: Load
    rounds: int
    keys: int
    schedules: int
    workers: int
    lanes: int = 1_000
    seconds: float = 3.0
    """For which traffic is watched, with and without a prune."""


FULL = Plan(
    grown=Sizes(finished=10_000_000, dead=1_000_000, scheduled=1_000_000, pending=1_000_000),
    load=Load(),
    rounds=7,
    keys=10_000,
    schedules=100_000,
    workers=1_000,
)
TENTH = Plan(
    grown=Sizes(finished=1_000_000, dead=100_000, scheduled=100_000, pending=100_000),
    load=Load(),
    rounds=5,
    keys=10_000,
    schedules=100_000,
    workers=1_000,
)
QUICK = Plan(
    grown=Sizes(finished=50_000, dead=5_000, scheduled=5_000, pending=5_000),
    load=Load(drained=2_000, enqueued=100, swept=5),
    rounds=2,
    keys=500,
    schedules=3_000,
    workers=100,
    seconds=1.0,
)


def main() -> int:
    """Fill, measure, report, and return the exit code."""
    options = _options()
    if not proc.is_there():
        print("this needs Linux: CPU time is read from /proc", file=sys.stderr)
        return 2
    logging.disable()
    progress, began = Console(stderr=True), time.monotonic()

    def tell(text: str) -> None:
        spent = time.monotonic() - began
        progress.print(f"[dim]{spent:4.0f} s[/]  {text}", highlight=False)

    plan = QUICK if options.quick else TENTH if options.tenth else FULL
    directory = options.directory / f"windlass-growth-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        report = asyncio.run(_measure(server, plan, options.only, tell))
    report.show(Console())
    if options.json is not None:
        report.write(options.json)
    return 0 if report.is_met else 1


async def _measure(server: Server, plan: Plan, only: Sequence[str], tell: Tell) -> Report:
    names = {"small": SMALL, "grown": plan.grown}
    stages = {
        name: Stage(server.create_database(name), server.pid, sizes)
        for name, sizes in names.items()
    }
    _set(stages["small"], autovacuum="off", fsync="off", max_wal_size="'8GB'")
    for name, stage in stages.items():
        await stage.app.store.migrate()
        tell(f"{name}: {stage.sizes}")
        await asyncio.to_thread(fill, stage.url, stage.sizes, tell)
    # As initdb leaves it, but for autovacuum: it would come by in one of the two and not the other.
    _set(stages["small"], fsync="on", max_wal_size="'1GB'")
    filled = {name: f"{stage.sizes}, {stage.size}" for name, stage in stages.items()}
    others = Others(server.pid)
    pairs = await _pairs(stages, plan, only, tell)
    windows, figures = await _rest(server, stages, plan, only, tell)
    for stage in stages.values():
        await stage.app.aclose()
    version = stages["small"].value("SHOW server_version")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    return Report(
        place=f"{machine}, Python {platform.python_version()}, PostgreSQL {version}",
        sizes=filled,
        others=others.cpus() or 0.0,
        pairs=pairs,
        windows=windows,
        figures=figures,
    )


async def _pairs(
    stages: Mapping[str, Stage], plan: Plan, only: Sequence[str], tell: Tell
) -> list[Pair]:
    """Take samples in both stores, in turn, beginning with another one each time."""
    measures: list[tuple[str, Measure, bool]] = []
    # Looks come first: operations finish as many jobs in the small store as it had.
    if "looks" in only:
        measures += [(name, each, True) for name, each in looks().items()]
    if "operations" in only:
        measures += [(name, each, False) for name, each in operations(plan.load).items()]
    pairs = []
    for name, measure, is_look in measures:
        samples: dict[str, list[Sample]] = {each: [] for each in stages}
        rounds = min(plan.rounds, _LOOK_ROUNDS) if is_look else plan.rounds
        for number in range(rounds + 1):
            for each in sorted(stages, reverse=bool(number % 2)):
                sample = await measure(stages[each])
                if number:  # The first one connects, and reads what is not cached.
                    samples[each].append(sample)
        pairs.append(
            Pair(name=name, small=samples["small"], grown=samples["grown"], is_look=is_look)
        )
        tell(str(pairs[-1]))
    return pairs


async def _rest(
    server: Server, stages: Mapping[str, Stage], plan: Plan, only: Sequence[str], tell: Tell
) -> tuple[Sequence[tuple[Window, Window]], Sequence[Figure]]:
    figures: list[Figure] = []
    if "crowds" in only:
        for number, crowd in enumerate(_crowds(plan)):
            stage = Stage(server.create_database(f"crowd_{number}"), server.pid, SMALL)
            await stage.app.store.migrate()
            figures += await crowd(stage)
            tell(str(figures[-1]))
            await stage.app.aclose()
    if "retention" not in only:
        return [], figures
    _set(stages["small"], autovacuum="on")
    windows = await retention.windows(stages["grown"], days=_WHOLE_DAYS, seconds=plan.seconds)
    return windows, figures


def _crowds(plan: Plan) -> list[Crowd]:
    return [
        partial(crowds.workers, number=plan.workers),
        partial(crowds.schedules, number=plan.schedules),
        partial(crowds.limit_keys, keys=plan.keys),
        partial(lanes, number=plan.lanes, seconds=plan.seconds),
    ]


def _set(stage: Stage, **settings: str) -> None:
    """Change settings of the server that a reload is enough for."""
    changes = [f"ALTER SYSTEM SET {name} = {value}" for name, value in settings.items()]
    stage.sql(*changes, "SELECT pg_reload_conf()")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction: finds what is broken")
    parser.add_argument("--tenth", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the server is made, on a real disk (/var/tmp)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
