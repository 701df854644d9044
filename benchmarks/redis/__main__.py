"""Owns the race on Redis: Windlass against its peers, in one run.

`python -m benchmarks.redis` exits with 1 if a bar is missed. It asserts ratios, never seconds: two
figures from the same minute of the same machine can be compared, and nothing else can. Only how
long a script may hold the server is a time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.capacity import proc
from benchmarks.capacity.others import Others
from benchmarks.entrants import in_python
from benchmarks.redis.contenders import OURS, PEERS, TUNED
from benchmarks.redis.field import QUICK, Field, Sizes
from benchmarks.redis.neighbours import neighbours
from benchmarks.redis.races import drain, latency, single, two_processes
from benchmarks.redis.server import Arena, arena
from benchmarks.redis.steadiness import aof, contention, finished, waiting
from benchmarks.report import Race, Report

SCENARIOS: dict[str, Callable[[Field], list[Race]]] = {
    "drain": drain,
    "two-processes": two_processes,
    "single": single,
    "latency": latency,
    "aof": aof,
    "waiting": waiting,
    "finished": finished,
    "neighbours": neighbours,
    "contention": contention,
}
"""By which names they can be chosen. `drain` measures the bulk enqueue, too: it has to fill."""

_BUSY = 0.5
"""CPUs in use by others, above which figures say little."""
_RESULTS = Path(__file__).parents[1] / "results" / "redis.json"


def main() -> int:
    """Race, report, and return the exit code."""
    options = _options()
    progress = Console(stderr=True)
    others = Others(os.getpid()) if proc.is_there() else None
    with arena(options.directory, options.server) as place:
        settings = place.settings()
        field = make_field(place, _sizes(options), options.peers, progress)
        report = race(field, options.only or list(SCENARIOS), {"server": settings})
    used = others.cpus() if others is not None else None
    if used is not None:
        report = replace(report, environment={**report.environment, "others": _busy(used)})
    report.show(Console())
    report.write(options.json)
    return 0 if report.is_met else 1


def make_field(place: Arena, sizes: Sizes, peers: Sequence[str], progress: Console) -> Field:
    """Find the contenders, and install what is missing."""
    progress.print("[dim]looking for the contenders, and installing what is missing[/]")
    return Field(
        arena=place,
        sizes=sizes,
        progress=progress,
        ours=in_python(OURS),
        tuned=in_python(TUNED),
        peers=[PEERS[name]() for name in peers],
    )


def race(field: Field, scenarios: Sequence[str], environment: dict[str, str]) -> Report:
    """Race through some of the scenarios."""
    return Report(
        title="Redis, one server",
        races=list(_races(field, scenarios)),
        environment={**environment, "sizes": str(field.sizes), **_settings(field)},
    )


def _races(field: Field, scenarios: Sequence[str]) -> Iterator[Race]:
    for name in scenarios:
        yield from SCENARIOS[name](field)


def _settings(field: Field) -> dict[str, str]:
    everybody = (field.ours, field.tuned, *field.peers)
    return {each.name: each.settings or f"missing: {each.missing}" for each in everybody}


def _busy(cpus: float) -> str:
    """Say how much of the machine others had, who lengthen every time that is measured."""
    warning = "; measure again when it is quiet" if cpus > _BUSY else ""
    return f"used {cpus:.1f} CPUs meanwhile{warning}"


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else Sizes()
    return replace(sizes, rounds=options.rounds or sizes.rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of everything")
    parser.add_argument("--rounds", type=int, help="of each, in turn (3; 1 if quick)")
    parser.add_argument(
        "--only", action="append", choices=SCENARIOS, help="this scenario; can be repeated"
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[*PEERS], help="against these")
    parser.add_argument(
        "--json", type=Path, default=_RESULTS, help="write every figure to this file"
    )
    parser.add_argument(
        "--server", type=Path, help="a redis-server or valkey-server, instead of the wheel's"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the servers keep their files, on a real disk (/var/tmp)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
