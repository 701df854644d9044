"""Owns `make soak`: chaos on every store in turn, for hours, with figures about jobs and memory.

`python tools/soak.py --time 2h`; the figures are in build/soak.json, and written after each round.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from windlass.chaos.laws.checker import failures
from windlass.chaos.observation.memory import WorkerMemory
from windlass.chaos.options import STORES, Options
from windlass.chaos.report.report import Report
from windlass.chaos.report.text import lines_of
from windlass.chaos.run import run_chaos
from windlass.core.values.durations import duration

_MAX_ROUND_SECONDS = 600.0
"""A longer round would only make the checker's work larger."""
_MIN_ROUND_SECONDS = 10.0
_LIVED = 0.5
"""The part of a round that a worker must have lived to say something about memory."""
_FLAT = 0.10
"""Growth from the first quarter to the last that still counts as flat."""
_CACHES = {"sqlite": 4 * 16_000 * 1024}
"""Bytes by which a worker may grow besides: each of its connections to SQLite has a page cache."""
_RESULTS = Path("build/soak.json")
_STOPPED = 130
"""The exit code after Ctrl-C or SIGTERM, as of `windlass chaos`."""


class Round(Struct, frozen=True, kw_only=True):
    """What one run of chaos has shown."""

    store: str
    seed: int
    started_at: datetime
    seconds: float
    jobs: int
    runs: int
    faults: int
    broken: tuple[str, ...]
    """The laws that were broken, or had no evidence where every run has it."""
    memory: tuple[WorkerMemory, ...]
    """Of the workers that lived for most of the round."""


class Total(Struct, frozen=True, kw_only=True):
    """The sum of rounds, of one store or of all."""

    name: str
    rounds: int
    seconds: float
    jobs: int
    runs: int
    faults: int
    broken: tuple[str, ...]
    workers: int
    """How many workers lived for most of their round."""
    first: int
    """The mean of their bytes in the first quarter of their time."""
    last: int
    cache: int
    """Bytes by which they may have grown, since their store has a cache."""

    @property
    def growth(self) -> float:
        """How much the last quarter is above the first, as a part of that."""
        return self.last / self.first - 1 if self.first else 0.0

    @property
    def is_flat(self) -> bool:
        """Whether memory was seen, and stayed about the same, but for the cache."""
        return self.workers > 0 and self.last <= self.first * (1 + _FLAT) + self.cache


class Results(Struct, frozen=True, kw_only=True):
    """The file of figures."""

    totals: tuple[Total, ...]
    rounds: tuple[Round, ...]


def round_of(report: Report) -> Round:
    """Return the figures of a report."""
    return Round(
        store=report.store,
        seed=report.seed,
        started_at=report.started_at,
        seconds=report.seconds,
        jobs=report.accepted,
        runs=report.runs,
        faults=sum(each.number > 0 and "no process" not in each.note for each in report.strikes),
        broken=tuple(failures(report.verdicts)),
        memory=tuple(each for each in report.memory if each.seconds > _LIVED * report.seconds),
    )


def total_of(name: str, rounds: Sequence[Round]) -> Total:
    """Add rounds up."""
    memory = [each for part in rounds for each in part.memory]
    caches = [_CACHES.get(part.store, 0) for part in rounds for _ in part.memory]
    return Total(
        name=name,
        rounds=len(rounds),
        seconds=round(sum(each.seconds for each in rounds), 1),
        jobs=sum(each.jobs for each in rounds),
        runs=sum(each.runs for each in rounds),
        faults=sum(each.faults for each in rounds),
        broken=tuple(law for each in rounds for law in each.broken),
        workers=len(memory),
        first=round(sum(each.first for each in memory) / max(len(memory), 1)),
        last=round(sum(each.last for each in memory) / max(len(memory), 1)),
        cache=round(sum(caches) / max(len(memory), 1)),
    )


def results_of(rounds: Sequence[Round]) -> Results:
    """Return the figures of every store, and of all together."""
    stores = [store for store in STORES if any(each.store == store for each in rounds)]
    of_stores = [total_of(name, [e for e in rounds if e.store == name]) for name in stores]
    return Results(totals=(*of_stores, total_of("all", rounds)), rounds=tuple(rounds))


def lines(results: Results) -> Iterator[str]:
    """Yield the figures as a table, which is one of Markdown, too."""
    yield "| store | rounds | minutes | jobs | runs | faults | broken laws | workers' memory |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in results.totals:
        broken = ", ".join(each.broken) or "none"
        yield (
            f"| {each.name} | {each.rounds} | {each.seconds / 60:.1f} | {each.jobs:,} | "
            f"{each.runs:,} | {each.faults:,} | {broken} | {_memory(each)} |"
        )


def _memory(total: Total) -> str:
    if not total.workers:
        return "not seen"
    verdict = "flat" if total.is_flat else "GROWS"
    return (
        f"{verdict}: {total.first / 1e6:.1f} MB, then {total.last / 1e6:.1f} MB "
        f"({total.growth:+.1%}, {total.workers} workers)"
    )


def unseen(results: Results) -> Iterator[str]:
    """Yield a line for each store whose workers did not live long enough to show their memory."""
    for each in results.totals[:-1]:
        if not each.workers:
            yield (
                f"the memory of the workers on {each.name} was not seen: none of them lived for "
                "most of a round; soak for longer, for example make soak TIME=30m"
            )


class Plan(Struct, frozen=True, kw_only=True):
    """How long, on which stores, how hard."""

    seconds: float
    stores: tuple[str, ...]
    rate: float
    """Jobs in a second."""
    fault_seconds: float
    """Seconds from one fault to the next."""
    seed: int

    @property
    def round_seconds(self) -> float:
        """How long a round lasts."""
        share = self.seconds / len(self.stores)
        return max(min(share, _MAX_ROUND_SECONDS), _MIN_ROUND_SECONDS)

    def options(self, number: int) -> Options:
        """Return the options of a round, counted from 0."""
        seconds = self.round_seconds
        return Options(
            store=self.stores[number % len(self.stores)],
            jobs=max(round(seconds * self.rate), 1),
            faults=round(seconds / self.fault_seconds),
            seconds=seconds,
            seed=self.seed + number,
            spared=1,
        )


def soak(plan: Plan, file: Path) -> Results:
    """Run rounds until the time is over, each store at least once, and write their figures."""
    rounds: list[Round] = []
    ends_at = time.monotonic() + plan.seconds
    for number in itertools.count():
        if number >= len(plan.stores) and time.monotonic() + plan.round_seconds > ends_at:
            break
        report = _run(plan.options(number))
        rounds.append(round_of(report))
        file.parent.mkdir(parents=True, exist_ok=True)
        results = results_of(rounds)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
        _say(*lines(results))
    return results_of(rounds)


def _run(options: Options) -> Report:
    directory = Path(tempfile.mkdtemp(prefix="windlass-soak-")).resolve()
    _say(f"{datetime.now(UTC):%H:%M:%S} {options.store}, seed {options.seed}")
    is_kept = True
    try:
        report = asyncio.run(run_chaos(options, directory, lambda _: None))
        is_kept = not report.ok
    except (KeyboardInterrupt, asyncio.CancelledError):
        is_kept = False
        raise
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    if is_kept:
        _say(*lines_of(report), f"ledger and logs: {directory}")
    return report


def _say(*texts: str) -> None:
    sys.stdout.write("".join(f"{text}\n" for text in texts))
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Soak as the arguments say; return 0 if no law was broken, and memory is flat everywhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", default="2h", help="how long (30m, 8h)")
    parser.add_argument("--store", action="append", choices=STORES, help="only this store")
    parser.add_argument("--rate", type=float, default=100.0, help="jobs in a second")
    parser.add_argument("--fault-every", default="5s", help="time from one fault to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=_RESULTS)
    given = parser.parse_args(arguments)
    plan = Plan(
        seconds=duration(given.time).total_seconds(),
        stores=tuple(given.store or STORES),
        rate=given.rate,
        fault_seconds=duration(given.fault_every).total_seconds(),
        seed=given.seed,
    )
    try:
        results = soak(plan, given.results)
    except (KeyboardInterrupt, asyncio.CancelledError):
        _say("stopped; all processes have ended")
        return _STOPPED
    _say(f"figures: {given.results}", *unseen(results))
    return int(any(each.broken or not each.is_flat for each in results.totals))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
