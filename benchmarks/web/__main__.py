"""Owns the measure of the web page: how long the server takes for a page, and what viewers cost.

`python -m benchmarks.web` fills a PostgreSQL of its own with ten million finished and one million
waiting jobs, asks for every page and the main documents of the API without anything remembered
from before, and opens fifty pages beside one. It exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from starlette.applications import Starlette

from benchmarks.web.browser import Browser
from benchmarks.web.fill import Sizes, fill, size_of
from benchmarks.web.report import Report, Timing, Watched, Weight
from benchmarks.web.shop import run_some, shop
from benchmarks.web.viewers import Backends, Others, load_of
from tests.support.postgres.server import Server
from windlass import Windlass
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.workflows.flow_graph import FLOW_KIND
from windlass.web.site import Site

FULL = Sizes(finished=10_000_000, pending=1_000_000, dead=100_000, groups=500)
QUICK = Sizes(finished=200_000, pending=50_000, dead=20_000, groups=200)
VIEWERS = 50
_WATCHED = ("/", "/jobs", "/errors", "/flows")
Tell = Callable[[str], None]
Ask = Callable[[], Awaitable[int]]


def main() -> int:
    """Fill, measure, report, and return the exit code."""
    options = _options()
    logging.disable()
    progress = Console(stderr=True)

    def tell(text: str) -> None:
        progress.print(f"[dim]{text}[/]", highlight=False)

    with _database(options) as url:
        report = asyncio.run(_measure(url, options, tell))
    report.show(Console())
    if options.json is not None:
        report.write(options.json)
    return 0 if report.is_met else 1


@contextmanager
def _database(options: argparse.Namespace) -> Iterator[str]:
    if options.url:
        yield options.url
        return
    directory = options.directory / f"windlass-bench-web-{os.getpid()}"
    with Server(directory=directory, remove=[directory]) as server:
        yield server.create_database("shop")


async def _measure(url: str, options: argparse.Namespace, tell: Tell) -> Report:
    app, sizes = shop(url), _sizes(options)
    await app.store.migrate()
    if not (await app.store.find(JobFilter(), limit=1)).jobs:
        tell("some jobs are run")
        await run_some(app)
        await asyncio.to_thread(fill, url, sizes, tell)
    page = app.web()
    others = Others()
    timings = await _timings(app, page, url, options.rounds, tell)
    report = Report(
        sizes=f"{sizes}; {size_of(url)}",
        timings=timings,
        others=others.cpus(url),
        weights=[await _weight(page, address) for address in ("/", "/jobs", "/errors")],
        watched=await _watched(page, url, timings, options.seconds, tell),
    )
    await app.aclose()
    return report


async def _addresses(app: Windlass) -> list[str]:
    """Return the pages and documents that are measured, with jobs in each state."""
    ids = {}
    for state in (State.PENDING, State.COMPLETED, State.DEAD):
        (job,) = (await app.store.find(JobFilter(states=(state,)), limit=1)).jobs
        ids[state] = job.id
    which = JobFilter(kind=FLOW_KIND, states=(State.COMPLETED,))
    (flow,) = (await app.store.find(which, limit=1, oldest_first=True)).jobs
    pages = ("errors", "kinds", "queues", "workers", "flows", "schedules", "limits", "store")
    documents = ("stats", "jobs", "errors", "workers", "schedules", "limits", "audit", "doctor")
    return [
        "/",
        "/jobs",
        *(f"/jobs?state={state}" for state in State),
        *(f"/jobs/{job}" for job in ids.values()),
        *(f"/{each}" for each in (*pages, "audit", "bulk")),
        f"/flows/{flow.id}",
        *(f"/api/v1/{each}" for each in documents),
        f"/api/v1/jobs/{ids[State.PENDING]}/why",
        "/jobs?q=kind:kind_3",
        "/jobs?q=payload.order:-1",
    ]


async def _timed(site: Site, name: str, ask: Ask, rounds: int, db: Backends) -> Timing:
    """Ask several times, each time as the first viewer after a change."""
    seconds, cpu, size = [], [], 0
    await ask()
    for _ in range(rounds):
        site.reads.forget()
        before, began = db.cpu(), time.perf_counter()
        size = await ask()
        seconds.append(time.perf_counter() - began)
        cpu.append(db.cpu() - before)
    return Timing(name=name, seconds=seconds, cpu_seconds=cpu, transferred=size)


async def _timings(
    app: Windlass, page: Starlette, url: str, rounds: int, tell: Tell
) -> list[Timing]:
    async def counts() -> int:
        await app.store.counts()
        return 0

    browser, site = Browser(page), page.state.site
    asks: dict[str, Ask] = {}
    for address in await _addresses(app):
        asks[address] = partial(browser.size_of, address)
    asks["windlass queues list"] = counts
    timings = []
    with Backends(url) as db:
        for name, ask in asks.items():
            timings.append(await _timed(site, name, ask, rounds, db))
            tell(str(timings[-1]))
    return timings


async def _weight(page: Starlette, address: str) -> Weight:
    browser = Browser(page)
    answer = await browser.get(address)
    assets = await browser.assets(answer)
    return Weight(
        name=address,
        page=answer.transferred,
        scripts=sum(size for name, size in assets.items() if name.endswith(".js")),
        styles=sum(size for name, size in assets.items() if name.endswith(".css")),
    )


async def _watched(
    page: Starlette, url: str, timings: Sequence[Timing], seconds: float, tell: Tell
) -> list[Watched]:
    names = [each.name for each in timings if each.name.startswith("/")]
    pages = [each for each in names if not each.startswith(("/api/", "/jobs?"))]
    cases = {each: [each] for each in pages if each in _WATCHED} | {"every page": pages}
    watched = []
    for name, addresses in cases.items():
        many = [addresses[number % len(addresses)] for number in range(VIEWERS)]
        one = await load_of(page, url, addresses, seconds=seconds)
        all_ = await load_of(page, url, many, seconds=seconds)
        watched.append(Watched(name=name, pages=len(addresses), one=one, many=all_))
        tell(str(watched[-1]))
    return watched


def _sizes(options: argparse.Namespace) -> Sizes:
    base = QUICK if options.quick else FULL
    return Sizes(
        finished=options.finished or base.finished,
        pending=options.pending or base.pending,
        dead=options.dead or base.dead,
        groups=base.groups,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fraction of everything")
    parser.add_argument("--finished", type=int, help="finished jobs (10000000; 200000 if quick)")
    parser.add_argument("--pending", type=int, help="waiting jobs (1000000; 50000 if quick)")
    parser.add_argument("--dead", type=int, help="dead jobs (100000; 20000 if quick)")
    parser.add_argument("--rounds", type=int, default=20, help="requests of each (20)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="for which pages stay open, each case (5)"
    )
    parser.add_argument("--url", help="of a database; one that has jobs is not filled again")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the server is made, on a real disk (/var/tmp)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
