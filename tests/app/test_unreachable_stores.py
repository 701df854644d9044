"""An enqueue that cannot reach its store raises one typed error, within a bounded time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import windlass
from tests.support.app_on_store import PROMPT, STORES, Bed, impatient, in_state, serving
from windlass import EnqueueUncertain, QueueFull, State, StoreError, StoreUnavailable, Windlass
from windlass.app import Handler
from windlass.core.stats.depths import QueueCount
from windlass.store.sqlite.connections import connection, file

pytestmark = pytest.mark.stores(*STORES)

SOURCE = str(Path(windlass.__file__).parents[1])
Note = Handler[[], None, [], None]


def note_at(url: str, **settings: Any) -> tuple[Windlass, Note]:
    app = Windlass(url, **settings)

    @app.job
    def note() -> None: ...

    return app, note


def missing_directory(tmp_path: Path) -> Path:
    return tmp_path / "nowhere" / "jobs.db"


def not_a_database(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, this is no database at all. " * 100)
    return path


def a_directory(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (missing_directory, "does not exist; create it"),
        (not_a_database, "is not an SQLite database"),
        (a_directory, "is a directory; name a file"),
    ],
    ids=["missing directory", "not a database", "a directory"],
)
def test_a_path_that_cannot_be_a_store_is_a_store_error(
    tmp_path: Path, place: Callable[[Path], Path], told: str
) -> None:
    path = place(tmp_path)
    app, note = note_at(f"sqlite:///{path}")
    began = time.monotonic()
    with pytest.raises(StoreError, match=told) as caught:
        note.enqueue()
    assert str(path) in str(caught.value)

    async def later() -> None:
        with pytest.raises(StoreError, match=told):
            await note.aenqueue()
        with pytest.raises(StoreError, match=told):
            await app.arun_worker()

    asyncio.run(later())
    assert time.monotonic() - began < 30


def test_a_file_that_may_only_be_read_is_a_store_error() -> None:
    script = """
        import asyncio, os, sys
        import windlass.store.sqlite  # While this user may read the interpreter's own files.
        from windlass import StoreUnavailable, Windlass
        app = Windlass(f"sqlite:///{sys.argv[1]}")
        @app.job
        def note() -> None: ...
        asyncio.run(asyncio.sleep(0))
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        try:
            note.enqueue()
        except StoreUnavailable as error:
            print(error)
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = Path(directory) / "jobs.db"
        app, note = note_at(f"sqlite:///{path}")
        note.enqueue()
        asyncio.run(app.aclose())
        path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        path.with_name("jobs.db-turn").unlink()
        Path(directory).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(path)],
            env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        Path(directory).chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "cannot be written" in done.stdout
    assert "check its owner and mode" in done.stdout


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Hold a write transaction open, as somebody's database shell would."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


@contextmanager
def turn_held(path: Path) -> Iterator[None]:
    """Hold the turn, as a process that was stopped at the wrong moment would."""
    descriptor = os.open(path.with_name(path.name + "-turn"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


Hold = Callable[[Path], AbstractContextManager[None]]


@pytest.mark.parametrize("used", ["used before", "first use"])
@pytest.mark.parametrize("hold", [written_to, turn_held])
def test_a_store_that_somebody_holds_is_unavailable_within_the_timeout(
    tmp_path: Path, hold: Hold, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    first, note = note_at(url)
    note.enqueue()
    if used == "first use":
        asyncio.run(first.aclose())
        app, note = note_at(url)
    else:
        app = first
    monkeypatch.setattr(file, "_BUSY_MS", 600)
    monkeypatch.setattr(connection, "_BUSY_SECONDS", 0.6)

    errors: list[Exception] = []

    def enqueue() -> None:
        try:
            note.enqueue()
        except Exception as error:
            errors.append(error)

    with hold(path), impatient(app):
        thread = threading.Thread(target=enqueue, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "the enqueue does not give up"
    (error,) = errors
    assert isinstance(error, StoreUnavailable)
    assert isinstance(error, EnqueueUncertain) or "nothing was written" in str(error)
    note.enqueue()
    asyncio.run(app.aclose())


def test_a_foreign_transaction_fails_an_async_enqueue_in_bounded_time_and_then_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    monkeypatch.setattr(connection, "_BUSY_SECONDS", 0.2)
    app, note = note_at(f"sqlite:///{path}")

    async def main() -> None:
        await note.aenqueue()
        with written_to(path), pytest.raises(StoreUnavailable, match="held a write lock"):
            await asyncio.wait_for(note.aenqueue(), 60)
        await note.aenqueue()
        await app.aclose()

    asyncio.run(main())


def test_an_async_enqueue_is_bounded_by_the_timeout_too(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app, note = note_at(f"sqlite:///{path}")

    async def main() -> None:
        await note.aenqueue()
        with turn_held(path), impatient(app), pytest.raises(StoreUnavailable):
            await asyncio.wait_for(note.aenqueue(), 15)  # The turn itself is given up after 20 s.
        await app.aclose()

    asyncio.run(main())


def test_a_full_memory_store_makes_producers_wait_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app, note = note_at("memory://", queue_size=2)

    async def main() -> None:
        first, second = await note.aenqueue(), await note.aenqueue()
        third = asyncio.create_task(note.aenqueue())
        fourth = asyncio.create_task(asyncio.to_thread(note.enqueue))
        await asyncio.sleep(0)
        assert not third.done()
        async with serving(app):
            for handle in (first, second, await third, await fourth):
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())


def test_a_memory_store_that_stays_full_refuses_within_the_timeout_however_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a coroutine that waits for room for ever, whatever `enqueue_timeout` says."""
    monkeypatch.chdir(tmp_path)
    app, note = note_at("memory://", queue_size=2, enqueue_timeout="50ms")

    async def main() -> None:
        first, second = await app.aenqueue_many([note.draft(), note.draft()])
        with pytest.raises(QueueFull, match="raise QUEUE_SIZE"):
            await asyncio.to_thread(note.enqueue)
        with pytest.raises(QueueFull, match="raise QUEUE_SIZE"):
            await asyncio.wait_for(note.aenqueue(), PROMPT)
        with pytest.raises(QueueFull, match="raise QUEUE_SIZE"):
            await asyncio.wait_for(app.aenqueue_many([note.draft()]), PROMPT)
        async with serving(app):
            for handle in (first, second):
                await in_state(handle, State.COMPLETED)
        assert await app.store.counts() == [
            QueueCount(queue="default", state=State.COMPLETED, count=2)
        ]

    asyncio.run(main())


def test_more_jobs_than_ever_fit_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app, note = note_at("memory://", queue_size=2)
    with pytest.raises(QueueFull, match="split them"):
        app.enqueue_many([note.draft() for _ in range(3)])


def test_a_wrong_url_names_those_that_are_right(bed: Bed) -> None:
    for url in ("mysql://x", "sqlite://jobs.db", "sqlite:///", "sqlite:///a.db?mode=ro"):
        with pytest.raises(windlass.ConfigError, match=r"sqlite:///relative\.db"):
            _ = Windlass(url).store
