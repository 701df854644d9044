"""Owns the race on PostgreSQL: Windlass against its peers, all durable, in one run on one server.

`python -m benchmarks.postgres` exits with 1 if a bar is missed. It asserts ratios, never seconds:
two figures from the same minute of the same machine can be compared, and nothing else can.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.database import Arena, own_server
from benchmarks.entrants import Entrant, in_node, in_python
from benchmarks.fairness import fairness
from benchmarks.field import QUICK, Field, Sizes
from benchmarks.flows import flows
from benchmarks.limits import limits
from benchmarks.observing import observing
from benchmarks.peers import graphile_worker
from benchmarks.processes import two_processes
from benchmarks.races import drain, latency, single, snapshot
from benchmarks.report import Race, Report
from benchmarks.steadiness import crowd, naps, waiting
from benchmarks.steps import steps
from tests.support.postgres.cluster import Cluster

SCENARIOS: dict[str, Callable[[Field], list[Race]]] = {
    "drain": drain,
    "two-processes": two_processes,
    "single": single,
    "latency": latency,
    "snapshot": snapshot,
    "crowd": crowd,
    "waiting": waiting,
    "naps": naps,
    "limits": limits,
    "fairness": fairness,
    "steps": steps,
    "flows": flows,
    "observing": observing,
}
"""By which names they can be chosen. `drain` measures the bulk enqueue, too: it has to fill."""

PEERS: dict[str, Callable[[], Entrant]] = {
    "pgqueuer": partial(
        in_python,
        "benchmarks.peers.pgqueuer_postgres:PgQueuerPostgres",
        name="PgQueuer",
        package="pgqueuer",
    ),
    "procrastinate": partial(
        in_python,
        "benchmarks.peers.procrastinate_postgres:ProcrastinatePostgres",
        name="Procrastinate",
        package="procrastinate",
    ),
    "graphile": partial(in_node, graphile_worker),
}
"""By which names they can be chosen."""

_OURS = "benchmarks.peers.windlass_postgres:WindlassPostgres"
_WITHOUT_WAKE_UPS = "benchmarks.peers.windlass_postgres:WindlassWithoutWakeUps"
_BARE = "benchmarks.peers.bare_statements:BareClaims"
_BARE_BULKS = (
    "benchmarks.peers.bare_statements:BareInsert",
    "benchmarks.peers.bare_statements:BareCopy",
)
_RESULTS = Path(__file__).with_name("results") / "postgres.json"


def main() -> int:
    """Race, report, and return the exit code."""
    options = _options()
    progress = Console(stderr=True)
    with _arena(options) as arena:
        settings = arena.settings()
        field = _field(arena, _sizes(options), options.peers, progress)
        races = list(_race(field, options.only or list(SCENARIOS)))
    report = Report(
        title="PostgreSQL, durable",
        races=races,
        environment={"postgresql": settings, "sizes": str(field.sizes), **_settings(field)},
    )
    report.show(Console())
    report.write(options.json)
    return 0 if report.is_met else 1


@contextmanager
def _arena(options: argparse.Namespace) -> Iterator[Arena]:
    if options.url is not None:
        yield Arena(Cluster(options.url))
        return
    with own_server(options.directory) as arena:
        yield arena


def _field(arena: Arena, sizes: Sizes, peers: Sequence[str], progress: Console) -> Field:
    progress.print("[dim]looking for the contenders, and installing what is missing[/]")
    return Field(
        arena=arena,
        sizes=sizes,
        progress=progress,
        ours=in_python(_OURS),
        without_wake_ups=in_python(_WITHOUT_WAKE_UPS),
        bare=in_python(_BARE),
        bare_bulks=[in_python(path) for path in _BARE_BULKS],
        peers=[PEERS[name]() for name in peers],
    )


def _race(field: Field, scenarios: Sequence[str]) -> Iterator[Race]:
    for name in scenarios:
        yield from SCENARIOS[name](field)


def _settings(field: Field) -> dict[str, str]:
    everybody = (field.ours, field.bare, *field.peers)
    return {each.name: each.settings or f"missing: {each.missing}" for each in everybody}


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else Sizes()
    return replace(sizes, rounds=options.rounds or sizes.rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of everything")
    parser.add_argument("--rounds", type=int, help="of each, in turn (3; 1 if quick)")
    parser.add_argument(
        "--only", action="append", choices=SCENARIOS, help="this scenario; can be repeated"
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[*PEERS], help="against these")
    parser.add_argument(
        "--json", type=Path, default=_RESULTS, help="write every figure to this file"
    )
    parser.add_argument("--url", help="a server that runs already, instead of one of our own")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the server keeps its data, on a real disk (/var/tmp)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
