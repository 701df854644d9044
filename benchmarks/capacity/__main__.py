"""Owns the figures by which Windlass is sized: what a job, a slot, a process, a connection takes.

`python -m benchmarks.capacity --page docs/capacity.md` measures, and puts the tables in their
places on the page. Nothing is asserted here: figures of another machine do not compare.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.capacity import (
    footprint,
    pooled,
    proc,
    producers,
    redis,
    space,
    table,
    throughput,
    waits,
)
from benchmarks.capacity.others import Others
from benchmarks.capacity.sizes import QUICK, Sizes, Survey
from benchmarks.capacity.table import Table
from benchmarks.capacity.yards import Site
from tests.support.postgres.server import Server


def _place(survey: Survey) -> list[Table]:
    """Tell where the figures were made, and with what."""
    facts = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "Python": platform.python_version(),
        "PostgreSQL": f"{survey.site.version()}, as `initdb` leaves it, on the same machine",
        "workers": "defaults, `METRICS_PORT=0` and `LOG_LEVEL=warning` unless a row says otherwise",
        "a rate": f"median of up to {survey.sizes.rounds} rounds (least to greatest); a rate "
        "without a range is of one round, after which no jobs were left",
    }
    rows = [list(each) for each in facts.items()]
    return [Table(name="place", head=("what", "which"), rows=rows)]


PARTS: dict[str, Callable[[Survey], list[Table]]] = {
    "place": _place,
    "throughput": throughput.throughput,
    "naps": throughput.naps,
    "handlers": throughput.handlers,
    "enqueues": producers.enqueues,
    "payloads": space.payloads,
    "memory": footprint.memory,
    "connections": footprint.connections,
    "pgbouncer": pooled.pgbouncer,
    "latency": waits.latency,
    "rescue": waits.rescue,
    "retention": space.retention,
    "server": producers.server,
    "redis": redis.parts,
}
"""By which names they can be chosen, in the order in which they are measured."""
_RESULTS = Path(__file__).parents[1] / "results" / "capacity.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured, and print it; return the exit code."""
    options = _options(arguments)
    failed: list[str] = []
    if options.read is not None:
        tables = table.read(options.read)
        _put(options.page, tables)
    elif not proc.is_there():
        print("this needs Linux: CPU time and memory are read from /proc", file=sys.stderr)
        return 2
    else:
        tables, failed = _measure(options)
    print("\n\n".join(each.markdown() for each in tables))
    _warn(tables, failed)
    return 1 if failed else 0


def _warn(tables: Sequence[Table], failed: Sequence[str]) -> None:
    """Say what is wrong with a run: what others disturbed, and what is missing."""
    if busy := [each.name for each in tables if each.is_busy]:
        told = f"others used this machine, so measure again when it is quiet: {', '.join(busy)}"
        print(f"\nwarning: {told}", file=sys.stderr)
    if failed:
        told = f"{', '.join(failed)}; the rest is kept, so try: --only {' '.join(failed)}"
        print(f"\nfailed: {told}", file=sys.stderr)


def _put(page: Path | None, tables: Sequence[Table]) -> None:
    if page is not None:
        page.write_text(table.placed(page.read_text("utf-8"), tables), encoding="utf-8")


def _measure(options: argparse.Namespace) -> tuple[list[Table], list[str]]:
    """Measure part by part, keeping each at once; return the tables, and the parts that failed."""
    progress = Console(stderr=True)
    began = time.monotonic()

    def tell(what: str) -> None:
        progress.print(f"[dim]{time.monotonic() - began:4.0f} s[/]  {what}", highlight=False)

    directory = options.directory / f"windlass-capacity-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        site = Site(server, options.directory)
        survey = Survey(site=site, sizes=QUICK if options.quick else Sizes(), tell=tell)
        site.version()  # Refuses a server that is not durable.
        parts = {name: partial(PARTS[name], survey) for name in options.only or PARTS}
        kept = table.read(options.json) if options.only and options.json.exists() else []
        tables, failed = measured(
            parts, server=server.pid, kept=kept, json=options.json, page=options.page
        )
    tell("done")
    return tables, failed


def measured(
    parts: Mapping[str, Callable[[], list[Table]]],
    *,
    server: int,
    kept: Sequence[Table],
    json: Path,
    page: Path | None,
) -> tuple[list[Table], list[str]]:
    """Measure parts, each kept as soon as it is there: one that fails does not take the others.

    Every table says by itself when it was measured and what others used meanwhile, since a page
    may hold tables of several runs. What was kept before stays, unless it is measured again.
    """
    tables: list[Table] = []
    failed: list[str] = []
    for name, part in parts.items():
        others, date = Others(server), time.strftime("%Y-%m-%d", time.gmtime())
        try:
            found = [replace(each, date=date, others=others.cpus()) for each in part()]
            tables += found
            table.write(json, table.merged(kept, tables))
            _put(page, found)
        except Exception:  # noqa: BLE001 - whatever it is, the other parts are worth having.
            traceback.print_exc()
            failed.append(name)
    return tables, failed


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of everything")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--page", type=Path, help="put the tables in their places on this page")
    parser.add_argument("--read", type=Path, help="measure nothing, but take what this file has")
    parser.add_argument(
        "--json", type=Path, default=_RESULTS, help="where the figures go (results/capacity.json)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the databases are made, on a real disk (/var/tmp)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
