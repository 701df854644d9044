"""Owns the load of open pages on the database: of one, and of many that look at the same.

A viewer does what the page's script does: it listens to the stream, and fetches its page again
when something changed. Meanwhile jobs are enqueued at a steady pace, by another connection, whose
transactions are not counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from starlette.applications import Starlette

from benchmarks.capacity.proc import busy_seconds, cpu_seconds
from benchmarks.web.browser import Browser
from windlass.web.site import Site

_ENQUEUE_EVERY = 0.5
_ENQUEUE = b"""SELECT windlass.enqueue('{"kind": "kind_2", "queue": "live", "payload": {}}')"""
_OWN = "bench web"


@dataclass(frozen=True, kw_only=True)
class Load:
    """What open pages cost the database, per second."""

    statements: float
    """Calls at our connections: every statement that is sent."""
    transactions: float
    rows: float
    """Rows that the server read, by its own account."""
    cpu: float
    """CPU seconds of the server's processes for our connections."""
    pages: int
    """Pages that were drawn."""


async def load_of(page: Starlette, url: str, addresses: Sequence[str], *, seconds: float) -> Load:
    """Open a page for each address, watch for a while, and return what the database did."""
    site: Site = page.state.site
    drawn = [0]
    with psycopg.connect(url, autocommit=True, application_name=_OWN) as db, _counted() as sent:
        viewers = [asyncio.create_task(_view(page, site, each, drawn)) for each in addresses]
        changes = asyncio.create_task(_changes(url))
        await asyncio.sleep(2.0)
        before, sent_before, drawn_before = _account(db), sent[0], drawn[0]
        began = time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        after = _account(db)
        await _ended({*viewers, changes})
    differences = [(late - early) / took for early, late in zip(before, after, strict=True)]
    return Load(
        statements=(sent[0] - sent_before) / took,
        transactions=differences[0],
        rows=differences[1],
        cpu=differences[2],
        pages=drawn[0] - drawn_before,
    )


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    while tasks:
        # Again and again: wait_for of Python 3.11 may swallow a cancellation.
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=0.1)


async def _view(page: Starlette, site: Site, address: str, drawn: list[int]) -> None:
    browser = Browser(page)
    await browser.get(address)
    async for event in site.watcher.subscribe():
        if event.startswith("event: changed"):
            await browser.get(address)
            drawn[0] += 1


async def _changes(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, application_name=_OWN
    ) as db:
        while True:
            await db.execute(_ENQUEUE)
            await asyncio.sleep(_ENQUEUE_EVERY)


class Backends:
    """The CPU time of this process, and of the server's processes for its connections."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True, application_name=_OWN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def cpu(self) -> float:
        """Return the seconds so far."""
        return _account(self._db)[2] + time.process_time()


class Others:
    """How many CPUs other programs use, from the moment on at which this is made."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), busy_seconds(), time.process_time()

    def cpus(self, url: str) -> float:
        """Return the CPUs that were used by others than this process and its connections."""
        with psycopg.connect(url, application_name=_OWN) as db:
            served = _account(db)[2]
        own = time.process_time() - self._own + served
        busy = busy_seconds() - self._busy
        return max(busy - own, 0.0) / (time.monotonic() - self._began)


def _account(db: psycopg.Connection[Any]) -> tuple[float, float, float]:
    """Return transactions, rows read, and CPU seconds of the connections that are not ours."""
    db.execute("SELECT pg_stat_clear_snapshot()")
    counters = db.execute(
        "SELECT xact_commit + xact_rollback, tup_returned FROM pg_stat_database "
        "WHERE datname = current_database()"
    ).fetchone()
    pids = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name <> %s AND backend_type = 'client backend'",
        (_OWN,),
    ).fetchall()
    assert counters is not None
    return float(counters[0]), float(counters[1]), cpu_seconds(pid for (pid,) in pids)


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Count the statements that psycopg's cursors send in this process."""
    number = [0]
    execute = psycopg.AsyncCursor.execute

    async def counting(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        number[0] += 1
        return await execute(self, query, *args, **kwargs)

    setattr(psycopg.AsyncCursor, "execute", counting)  # noqa: B010
    try:
        yield number
    finally:
        setattr(psycopg.AsyncCursor, "execute", execute)  # noqa: B010
