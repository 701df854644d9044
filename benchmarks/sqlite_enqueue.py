"""Owns how fast single jobs are enqueued on SQLite: blocking, awaited, by 16 coroutines at once.

`python -m benchmarks.sqlite_enqueue` holds each against Huey's single enqueue, with the same
durability, burst by burst in one run, and exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.huey_sqlite import HueySqlite
from benchmarks.peers.windlass_sqlite import WindlassSqlite
from windlass import Handler, Windlass

_PRODUCERS = 16
_BARS = {"enqueue": 1.0, "aenqueue": 1.0, f"aenqueue, {_PRODUCERS} at once": 5.0}


@dataclass(frozen=True, kw_only=True)
class Burst:
    """What one job of a burst took, in microseconds."""

    wall: float
    cpu: float


def main() -> int:
    """Enqueue in turn, print, and return the exit code."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.directory) as name, asyncio.Runner() as runner:
        directory = Path(name)
        huey, ours = HueySqlite(directory, []), WindlassSqlite(directory, [])
        # A file for each: a full one takes longer, and the crowd enqueues sixteen times as much.
        apps = {name: Windlass(f"sqlite:///{directory}/{name}.db") for name in ("one", "crowd")}
        noops = {name: app.job(name="noop")(_noop) for name, app in apps.items()}

        def awaited(name: str, producers: int) -> None:
            runner.run(_enqueue(noops[name], options.jobs, producers))

        bursts: dict[str, tuple[int, Callable[[], None]]] = {
            "Huey": (1, lambda: _repeat(huey.enqueue, options.jobs)),
            "enqueue": (1, lambda: _repeat(ours.enqueue, options.jobs)),
            "aenqueue": (1, lambda: awaited("one", 1)),
            f"aenqueue, {_PRODUCERS} at once": (_PRODUCERS, lambda: awaited("crowd", _PRODUCERS)),
        }
        found: dict[str, list[Burst]] = {name: [] for name in bursts}
        for number in range(options.rounds + 1):
            for name, (producers, burst) in bursts.items():
                taken = _timed(burst, options.jobs * producers)
                found[name] += [taken] if number else []  # The first warms up.
        for app in apps.values():
            runner.run(app.aclose())
        ours.close()
        huey.close()
    return _report(found)


async def _noop() -> None: ...


async def _enqueue(noop: Handler[..., Any, Any, Any], jobs: int, producers: int) -> None:
    async def produce() -> None:
        for _ in range(jobs):
            await noop.aenqueue()

    await asyncio.gather(*(produce() for _ in range(producers)))


def _repeat(enqueue: Callable[[], None], jobs: int) -> None:
    for _ in range(jobs):
        enqueue()


def _timed(burst: Callable[[], None], jobs: int) -> Burst:
    began, cpu = time.perf_counter(), time.process_time()
    burst()
    wall = (time.perf_counter() - began) / jobs * 1e6
    return Burst(wall=wall, cpu=(time.process_time() - cpu) / jobs * 1e6)


def _report(found: dict[str, list[Burst]]) -> int:
    table = Table("SQLite, durable", "µs a job", "µs of CPU a job", "times Huey's rate", "bar")
    missed = 0
    for name, bursts in found.items():
        pairs = zip(found["Huey"], bursts, strict=True)
        ratio = statistics.median(theirs.wall / ours.wall for theirs, ours in pairs)
        bar = _BARS.get(name)
        missed += bar is not None and ratio < bar
        shown = [statistics.median(values) for values in zip(*map(_values, bursts), strict=True)]
        figures = [f"{value:,.0f}" for value in shown]
        table.add_row(name, *figures, f"{ratio:.2f}", "" if bar is None else f">= {bar:g}")
    Console().print(table)
    return 1 if missed else 0


def _values(burst: Burst) -> tuple[float, float]:
    return burst.wall, burst.cpu


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sqlite_enqueue", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=10, help="of bursts, in turn (10)")
    parser.add_argument("--jobs", type=int, default=200, help="of each burst and producer (200)")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="(/var/tmp)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
