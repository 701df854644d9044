"""Owns what tests of the app and the worker stand on: apps on every store, and workers for them.

Waiting is bounded polling or an event; nothing here sleeps to let something else happen.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest

from tests.support.clocked_stores import migrate, migrate_with_clock
from tests.support.postgres.scratch import Prepare, Scratches
from tests.support.redis_fixtures import CLOCK, set_redis_clock
from tests.support.redis_server import RedisServer
from windlass import Handle, Job, State, Windlass
from windlass.store import Store
from windlass.store.memory import MemoryStore
from windlass.store.postgres import PostgresStore
from windlass.store.redis import RedisStore
from windlass.store.redis.scripting.script_files import load_scripts
from windlass.store.sqlite import SqliteStore
from windlass.worker import Worker

STORES = ("memory", "sqlite", "postgres", "redis")
on_embedded_stores = pytest.mark.parametrize("bed", ["memory", "sqlite"], indirect=True)
"""For what has nothing to do with the store: a PostgreSQL takes a quarter of a second more."""
PROMPT = 60.0
"""Seconds within which whatever is prompt has happened, also on a busy machine."""
OF_A_JOB = {"job_id", "worker_id", "kind", "queue", "attempt"}
"""What every log line that belongs to a job carries."""
QUICK: dict[str, Any] = {"poll_interval": "20ms", "shutdown_timeout": "5s"}


class Clock:
    """A store's clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, 12, tzinfo=UTC)
        self._driven: Callable[[datetime], None] | None = None

    @property
    def now(self) -> datetime:
        return self._now

    @now.setter
    def now(self, now: datetime) -> None:
        self._now = now
        if self._driven is not None:
            self._driven(now)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, **span: float) -> None:
        self.now += timedelta(**span)

    def drive(self, set_clock: Callable[[datetime], None]) -> None:
        """Set a clock that is elsewhere, now and whenever this one moves."""
        self._driven = set_clock
        set_clock(self._now)


class Through:
    """A store that passes everything on to another; tests override what shall go wrong."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Bed:
    """One kind of store, in a directory of its own, and the apps that a test makes on it."""

    def __init__(
        self,
        kind: str,
        directory: Path,
        scratches: Scratches | None = None,
        prepare: Prepare = migrate,
        redis: RedisServer | None = None,
    ) -> None:
        self.kind = kind
        self.directory = directory
        self._scratches = scratches
        self._prepare = prepare
        self._database: str | None = None
        self.redis = redis
        self.prefix = f"bed-{uuid4().hex[:12]}"
        self._made: list[Windlass | Store] = []

    @property
    def path(self) -> Path:
        """Where the SQLite file is."""
        return self.directory / "jobs.db"

    @property
    def url(self) -> str:
        if self.kind == "postgres":
            return self._database or self._fresh(self._prepare)
        if self.redis is not None:
            return f"{self.redis.url}?prefix={self.prefix}"
        return "memory://" if self.kind == "memory" else f"sqlite:///{self.path}"

    def app(self, *, store: Any = None, **settings: Any) -> Windlass:
        """Make an app, on a store of the test's own if one is given."""
        app = Windlass(self.url, **settings)
        if store is not None:
            app.store = store
        self._made.append(app)
        return app

    def store(self, *, clock: Clock | None = None, size: int = 1000) -> Store:
        """Make a store, with a clock of the test's own if one is given."""
        options: dict[str, Any] = {} if clock is None else {"clock": clock}
        if self.kind == "memory":
            return MemoryStore(size=size, **options)
        if self.kind == "sqlite":
            return SqliteStore(self.path, **options)
        if self.redis is not None:
            return self._redis_store(self.redis, clock)
        url = self.url if clock is None else self._fresh(migrate_with_clock)
        store = PostgresStore(url)
        if clock is not None:
            clock.drive(partial(_set_clock, url, store))
        self._made.append(store)
        return store

    def _redis_store(self, server: RedisServer, clock: Clock | None) -> RedisStore:
        scripts = None if clock is None else load_scripts(clock=CLOCK)
        store = RedisStore(self.url, scripts=scripts)
        if clock is not None:
            clock.drive(partial(_set_redis_clock, server, self.prefix, store))
        self._made.append(store)
        return store

    async def close(self) -> None:
        for made in self._made:
            if isinstance(made, Windlass):
                # First: a store closes the connections of loops that have ended, not of others.
                made.portal.close()
                await made.aclose()
            else:
                await made.close()

    def _fresh(self, prepare: Prepare) -> str:
        assert self._scratches is not None
        self._database = self._scratches.of(prepare).fresh()
        return self._database


def set_clock(url: str, now: datetime) -> None:
    """Set the clock of a schema that was made with one."""
    with psycopg.connect(url) as db:
        db.execute("UPDATE clock.hands SET now = %s", [now])


def _set_clock(url: str, store: PostgresStore, now: datetime) -> None:
    set_clock(url, now)
    # Between two sweeps a store goes by the time that passes, and on a busy machine they are rare.
    for home in store._by_loop._by_loop.values():
        home.lanes.doubt()


def _set_redis_clock(server: RedisServer, prefix: str, store: RedisStore, now: datetime) -> None:
    set_redis_clock(server, prefix, now)
    for state in list(store._states.values()):
        state.doubt()


@cache
def migrated_file() -> bytes:
    """Return a SQLite file with the schema: to make it takes five times as long as to open it."""

    async def make(path: Path) -> None:
        store = SqliteStore(path)
        await store.migrate()
        await store.close()

    with TemporaryDirectory() as directory:
        path = Path(directory) / "jobs.db"
        asyncio.run(make(path))
        return path.read_bytes()


@pytest.fixture(params=STORES)
def bed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bed]:
    """A bed on each of the stores, with nothing in the environment that could meddle."""
    monkeypatch.chdir(tmp_path)
    kind = cast("str", request.param)
    # Only if it is wanted: the first who asks for it starts a server.
    wanted = request.getfixturevalue("postgres_scratches") if kind == "postgres" else None
    redis = request.getfixturevalue("redis_server") if kind == "redis" else None
    made = Bed(kind, tmp_path, wanted, redis=redis)
    if kind == "sqlite":
        made.path.write_bytes(migrated_file())
    yield made
    asyncio.run(made.close())
    if redis is not None:
        redis.forget(made.prefix)


@asynccontextmanager
async def serving(app: Windlass, **flags: Any) -> AsyncIterator[Worker]:
    """Run a worker around a block, and drain it afterwards."""
    worker = app.worker(**QUICK | flags)
    task = asyncio.create_task(worker.run())
    try:
        await until(lambda: task.done() or started(worker))
        if task.done():
            await task
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


def started(worker: Worker) -> bool:
    """Say whether a worker has its lease and has begun to serve."""
    return worker.id != "" and worker._parts.threads._serial > 0


@contextmanager
def serving_in_a_thread(app: Windlass, **flags: Any) -> Iterator[Worker]:
    """Run a worker in a thread with its own event loop, for tests of blocking code."""
    ready = threading.Event()
    workers: list[tuple[Worker, asyncio.AbstractEventLoop]] = []
    over = asyncio.Event()

    async def main() -> None:
        async with serving(app, **flags) as worker:
            workers.append((worker, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(PROMPT), "the worker did not start"
    worker, loop = workers[0]
    try:
        yield worker
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        assert not thread.is_alive(), "the worker did not stop"


@contextmanager
def impatient(app: Windlass, enqueue_timeout: str = "500ms") -> Iterator[None]:
    """Let enqueues give up soon, in the block only: elsewhere a busy machine has time for them."""
    before = app.settings.enqueue_timeout
    app.configure(enqueue_timeout=enqueue_timeout)
    try:
        yield
    finally:
        app.configure(enqueue_timeout=before)


async def until(check: Callable[[], object], *, within: float = PROMPT) -> None:
    """Wait until something is so; a check may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        answer = check()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        assert time.monotonic() < deadline, f"not so within {within:g} s"
        await asyncio.sleep(0.005)


async def in_state(handle: Handle[Any], *states: State, within: float = PROMPT) -> Job:
    """Wait until a job is in one of some states, and return it as it is then."""
    deadline = time.monotonic() + within
    while (job := await handle.ainfo()).state not in states:
        assert time.monotonic() < deadline, f"still {job.state} after {within:g} s: {job.reason}"
        await asyncio.sleep(0.005)
    return job


async def charged(handle: Handle[Any], failures: int) -> Job:
    """Wait until a job has been charged with so many failures, and return it as it is then."""
    await until(lambda: _has_failed(handle, failures))
    return await handle.ainfo()


async def _has_failed(handle: Handle[Any], failures: int) -> bool:
    return (await handle.ainfo()).failures >= failures


def our_threads(*, besides: Collection[threading.Thread] = ()) -> list[str]:
    """Return the names of the threads that Windlass has made and that still run.

    Those for one errand are waited for: they answer first, and then end.
    """
    running = [thread for thread in threading.enumerate() if thread not in besides]
    for errand in [each for each in running if each.name == "windlass-file"]:
        errand.join(60)
    running = [each for each in running if each.is_alive()]
    return sorted(each.name for each in running if each.name.startswith("windlass-"))


def log_lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of the log lines about an event; one that names a job says all about it."""
    lines = [
        dict(record.msg)
        for record in caplog.records
        if isinstance(record.msg, dict) and record.msg.get("event") == event
    ]
    for line in lines:
        assert "job_id" not in line or line.keys() >= OF_A_JOB, line
    return lines
