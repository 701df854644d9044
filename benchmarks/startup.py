"""Owns what starting takes: CPU time of the imports, and a supervised worker until it serves.

`python -m benchmarks.startup` prints the figures and exits with 1 if a bar is missed. CPU time and
memory are the system's own accounts; the wall clock is only shown for the worker, where processes
wait for each other.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.capacity import proc
from tests.support.postgres.server import Server

_APP = "benchmarks.startup_app:app"
_MIB = 2**20
_SETTLING_SECONDS = 2.0
_WORDS = {
    "python": ("-c", "pass"),
    "import asyncio": ("-c", "import asyncio"),
    "import windlass": ("-c", "import windlass"),
    "an app with a handler": (
        "-c",
        "import windlass\napp = windlass.Windlass('memory://')\n@app.job\nasync def hi(): ...",
    ),
    "windlass --version": ("-m", "windlass", "--version"),
    "windlass --help": ("-m", "windlass", "--help"),
    "windlass jobs --help": ("-m", "windlass", "jobs", "--help"),
}
_BARS = {
    "import windlass": 90.0,
    "windlass --help": 150.0,
    "supervised worker ready, wall": 400.0,
    "supervisor + worker, PSS": 70.0,
}


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a supervised worker: milliseconds until it serves, MiB once it idles."""

    wall: float
    cpu: float
    supervisor: float
    worker: float


def main() -> int:
    """Measure, print, and return the exit code."""
    options = _options()
    rows: dict[str, list[float]] = {name: [] for name in _WORDS}
    for _ in range(options.rounds):
        for name, words in _WORDS.items():
            rows[name].append(_cpu(words))
    with _database(options.directory) as url:
        starts = [_start(url) for _ in range(options.rounds)]
    figures: dict[str, Callable[[Start], float]] = {
        "supervised worker ready, wall": lambda it: it.wall,
        "supervised worker ready, CPU": lambda it: it.cpu,
        "supervisor, PSS": lambda it: it.supervisor,
        "worker, PSS": lambda it: it.worker,
        "supervisor + worker, PSS": lambda it: it.supervisor + it.worker,
    }
    rows |= {name: [figure(each) for each in starts] for name, figure in figures.items()}
    return _report(rows)


def _report(rows: dict[str, list[float]]) -> int:
    table = Table("what", "median", "least", "greatest", "bar", title="starting")
    missed = 0
    for name, values in rows.items():
        unit = "MiB" if "PSS" in name else "ms"
        bar = _BARS.get(name)
        median = statistics.median(values)
        missed += bar is not None and median > bar
        shown = [f"{each:.1f} {unit}" for each in (median, min(values), max(values))]
        table.add_row(name, *shown, "" if bar is None else f"<= {bar:g} {unit}")
    Console().print(table)
    return 1 if missed else 0


def _cpu(words: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=_environment()
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent * 1000


def _start(url: str) -> Start:
    """Start `windlass worker`, and measure until it logs that it serves, and then its memory."""
    command = [sys.executable, "-m", "windlass", "worker", _APP, "--log-format", "json"]
    began = time.monotonic()
    with subprocess.Popen(
        command,
        env=_environment() | {"WINDLASS_URL": url, "WINDLASS_METRICS_PORT": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            for line in process.stderr or ():
                if b"worker.started" in line:
                    break
            wall = time.monotonic() - began
            family = proc.family(process.pid)
            cpu = proc.cpu_seconds(family)
            time.sleep(_SETTLING_SECONDS)
            shares = [_share(pid) for pid in family]
        finally:
            process.terminate()
            process.communicate()
    return Start(wall=wall * 1e3, cpu=cpu * 1e3, supervisor=shares[0], worker=sum(shares[1:]))


def _share(pid: int) -> float:
    """Return the proportional set size of a process: pages that it shares count in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / _MIB
    return 0.0


@contextmanager
def _database(within: Path) -> Iterator[str]:
    directory = within / f"windlass-startup-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        url = server.create_database("startup")
        command = [sys.executable, "-m", "windlass", "migrate", "--url", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield url


def _environment() -> dict[str, str]:
    # Bytecode is kept, as it is wherever a package was installed.
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith("WINDLASS_")
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of each, in turn (7)")
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="of the server's data (/var/tmp)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
