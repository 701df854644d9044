"""Owns what tests of the app and the worker stand on: apps on both stores, and workers for them.

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
from pathlib import Path
from typing import Any, cast

import pytest

from windlass import Handle, Job, State, Windlass
from windlass.runtime import Worker
from windlass.store import Store
from windlass.store.memory import MemoryStore
from windlass.store.sqlite import SqliteStore

STORES = ("memory", "sqlite")
PROMPT = 10.0
"""Seconds within which whatever is prompt has happened, also on a slow machine."""
QUICK: dict[str, Any] = {"poll_interval": "20ms", "shutdown_timeout": "5s"}


class Clock:
    """A store's clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **span: float) -> None:
        self.now += timedelta(**span)


class Through:
    """A store that passes everything on to another; tests override what shall go wrong."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Bed:
    """One kind of store, in a directory of its own, and the apps that a test makes on it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self._apps: list[Windlass] = []

    @property
    def path(self) -> Path:
        """Where the SQLite file is."""
        return self.directory / "jobs.db"

    @property
    def url(self) -> str:
        return "memory://" if self.kind == "memory" else f"sqlite:///{self.path}"

    def app(self, *, store: Any = None, **settings: Any) -> Windlass:
        """Make an app, on a store of the test's own if one is given."""
        app = Windlass(self.url, **settings)
        if store is not None:
            app.store = store
        self._apps.append(app)
        return app

    def store(self, *, clock: Callable[[], datetime] | None = None, size: int = 1000) -> Store:
        """Make a store, with a clock of the test's own if one is given."""
        options: dict[str, Any] = {} if clock is None else {"clock": clock}
        if self.kind == "memory":
            return MemoryStore(size=size, **options)
        return SqliteStore(self.path, **options)

    async def close(self) -> None:
        for app in self._apps:
            await app.aclose()


@pytest.fixture(params=STORES)
def bed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bed]:
    """A bed on each of the stores, with nothing in the environment that could meddle."""
    monkeypatch.chdir(tmp_path)
    made = Bed(cast("str", request.param), tmp_path)
    yield made
    asyncio.run(made.close())


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
        await asyncio.wait_for(task, 20)


def started(worker: Worker) -> bool:
    """Say whether a worker has its lease and has begun to serve."""
    return worker.id != "" and worker._threads._serial > 0


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
        thread.join(20)
        assert not thread.is_alive(), "the worker did not stop"


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
    while (job := await handle.ajob()).state not in states:
        assert time.monotonic() < deadline, f"still {job.state} after {within:g} s: {job.reason}"
        await asyncio.sleep(0.005)
    return job


async def charged(handle: Handle[Any], failures: int) -> Job:
    """Wait until a job has been charged with so many failures, and return it as it is then."""
    await until(lambda: _has_failed(handle, failures))
    return await handle.ajob()


async def _has_failed(handle: Handle[Any], failures: int) -> bool:
    return (await handle.ajob()).failures >= failures


def our_threads(*, besides: Collection[threading.Thread] = ()) -> list[str]:
    """Return the names of the threads that Windlass has made and that still run.

    Those for one errand are waited for: they answer first, and then end.
    """
    running = [thread for thread in threading.enumerate() if thread not in besides]
    for errand in [each for each in running if each.name == "windlass-file"]:
        errand.join(10)
    running = [each for each in running if each.is_alive()]
    return sorted(each.name for each in running if each.name.startswith("windlass-"))


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the fields of the log lines about an event."""
    return [
        dict(record.msg)
        for record in caplog.records
        if isinstance(record.msg, dict) and record.msg.get("event") == event
    ]
