"""Owns how near the defaults come to the best setting: drains of no-ops, in turn, in one run.

`python -m benchmarks.defaults` exits with 1 if a worker whose user has set nothing drains fewer
than 0.85 of the jobs a second that the best of the tuned settings drains on the same store. The
ratio of every round is taken by itself, since a machine's speed changes from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.support.postgres.server import Server
from windlass import Job, Windlass

BAR = 0.85
TUNED = ("1000/1000", "4000/1000", "4000/2000")
"""Slots and claim sizes of the settings that the defaults are held against."""
_DEFAULT = "defaults"
_CHUNK = 5_000


@dataclass(frozen=True, kw_only=True)
class Drain:
    """One drain: jobs a second from the first start to the last, µs of CPU a job, jobs a claim."""

    rate: float
    cpu: float
    bite: float


def main() -> int:
    """Drain in turn, print, and return the exit code."""
    options = _options()
    if options.drain:
        return _drain(options.drain, options.jobs, options.setting)
    met = True
    for store in options.stores:
        with _url(store, options.directory) as url:
            rounds = [_round(url, options.jobs) for _ in range(options.rounds)]
        met = _report(store, rounds) >= BAR and met
    return 0 if met else 1


def _round(url: str, jobs: int) -> dict[str, Drain]:
    found = {}
    for setting in (_DEFAULT, *TUNED):
        command = [sys.executable, "-m", "benchmarks.defaults", "--drain", url]
        command += ["--jobs", str(jobs), "--setting", setting]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[setting] = Drain(**json.loads(done.stdout))
    return found


def _report(store: str, rounds: list[dict[str, Drain]]) -> float:
    ratios = [each[_DEFAULT].rate / max(each[setting].rate for setting in TUNED) for each in rounds]
    table = Table("setting", "jobs/s, median", "least", "greatest", title=store)
    for name in ("µs of CPU a job", "jobs a claim"):
        table.add_column(name)
    for setting in (_DEFAULT, *TUNED):
        rates = [each[setting].rate for each in rounds]
        cpu = statistics.median(each[setting].cpu for each in rounds)
        shown = [f"{value:,.0f}" for value in (statistics.median(rates), min(rates), max(rates))]
        bite = statistics.median(each[setting].bite for each in rounds)
        table.add_row(setting, *shown, f"{cpu:.1f}", f"{bite:.0f}")
    ratio = statistics.median(ratios)
    console = Console()
    console.print(table)
    listed = ", ".join(f"{each:.2f}" for each in ratios)
    console.print(f"{store}: defaults have {ratio:.2f} of the best setting ({listed}); bar {BAR}")
    return ratio


def _drain(url: str, jobs: int, setting: str) -> int:
    """Fill the store and empty it in this process, as a worker with these settings."""
    starts: list[int] = []
    app = Windlass(url, log_level="warning")

    @app.job
    async def noop() -> None:
        starts.append(time.monotonic_ns())

    for done in range(0, jobs, _CHUNK):
        app.enqueue_many([noop.draft() for _ in range(min(_CHUNK, jobs - done))])
    claims: list[int] = []
    _count_claims(app, claims)
    began = time.process_time()
    if setting == _DEFAULT:
        app.run_worker(burst=True)
    else:
        slots, size = map(int, setting.split("/"))
        app.run_worker(burst=True, concurrency=slots, claim_size=size)
    cpu = time.process_time() - began
    seconds = (starts[-1] - starts[0]) / 1e9
    rate = (len(starts) - 1) / seconds
    print(json.dumps({"rate": rate, "cpu": cpu / jobs * 1e6, "bite": jobs / len(claims)}))
    return 0


def _count_claims(app: Windlass, claims: list[int]) -> None:
    claim = app.store.claim

    async def counted(*arguments: Any, **named: Any) -> list[Job]:
        jobs = await claim(*arguments, **named)
        claims.append(len(jobs))
        return jobs

    vars(app.store)["claim"] = counted


@contextmanager
def _url(store: str, within: Path) -> Iterator[str]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="windlass-defaults-", dir=within) as name:
            yield f"sqlite:///{name}/windlass.db"
        return
    directory = within / f"windlass-defaults-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        url = server.create_database("defaults")
        command = [sys.executable, "-m", "windlass", "migrate", "--url", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield url


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each, in turn (5)")
    parser.add_argument("--jobs", type=int, default=30_000, help="of each drain (30000)")
    parser.add_argument("--stores", nargs="+", default=["postgres", "sqlite"])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="(/var/tmp)")
    parser.add_argument("--drain", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--setting", default=_DEFAULT, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
