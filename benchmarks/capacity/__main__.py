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
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.capacity import footprint, pooled, proc, producers, space, table, throughput, waits
from benchmarks.capacity.sizes import QUICK, Sizes, Survey
from benchmarks.capacity.table import Table
from benchmarks.capacity.yards import Site
from tests.postgres.server import Server

PARTS: dict[str, Callable[[Survey], list[Table]]] = {
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
}
"""By which names they can be chosen, in the order in which they are measured."""
_RESULTS = Path(__file__).parents[1] / "results" / "capacity.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured, and print it; return the exit code."""
    options = _options(arguments)
    if options.read is not None:
        tables = table.read(options.read)
    elif not proc.is_there():
        print("this needs Linux: CPU time and memory are read from /proc", file=sys.stderr)
        return 2
    else:
        tables = _measure(options)
        table.write(options.json, tables)
    if options.page is not None:
        page = options.page.read_text("utf-8")
        options.page.write_text(table.placed(page, tables), encoding="utf-8")
    print("\n\n".join(each.markdown() for each in tables))
    return 0


def _measure(options: argparse.Namespace) -> list[Table]:
    progress = Console(stderr=True)
    began = time.monotonic()

    def tell(what: str) -> None:
        progress.print(f"[dim]{time.monotonic() - began:4.0f} s[/]  {what}", highlight=False)

    directory = options.directory / f"windlass-capacity-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        site = Site(server, options.directory)
        survey = Survey(site=site, sizes=QUICK if options.quick else Sizes(), tell=tell)
        tables = [_place(site)]
        for name in options.only or PARTS:
            tables += PARTS[name](survey)
    tell("done")
    return tables


def _place(site: Site) -> Table:
    """Tell where the figures were made."""
    facts = {
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load of the machine before": f"{os.getloadavg()[1]:.1f}",
        "Python": platform.python_version(),
        "PostgreSQL": f"{site.version()}, as `initdb` leaves it, on the same machine",
    }
    return Table(name="place", head=("what", "which"), rows=[list(each) for each in facts.items()])


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
