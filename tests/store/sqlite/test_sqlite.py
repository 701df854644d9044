"""What only the SQLite store promises: about its file, its schema, its plans and its one writer."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.store.sqlite.jobs_in_a_file import PATIENCE, claim, new
from windlass.core.changes import Changes
from windlass.core.errors import StoreError, StoreUnavailable
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Checkpoint, Job, Saga
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.store.sqlite import SqliteStore, operations
from windlass.store.sqlite.connections import connection, file_access

# -- the file --------------------------------------------------------------------------------


def test_only_the_owner_may_read_any_of_the_files(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.enqueue([new(1)]))
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    names = ("jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-turn")
    assert modes == dict.fromkeys(names, 0o600)


def test_a_file_that_others_may_read_is_a_finding(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.open())
    assert asyncio.run(store.findings()) == []
    path.chmod(0o644)
    (finding,) = asyncio.run(store.findings())
    assert "can be read by other users" in finding.problem
    assert finding.remedy == f"chmod 600 {path}"


def test_a_file_that_is_mostly_empty_is_a_finding(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.open())
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE once (filled BLOB)")
        db.execute("INSERT INTO once VALUES (zeroblob(80000000))")
        db.commit()
        assert asyncio.run(store.findings()) == []
        db.execute("DROP TABLE once")
        db.commit()
    (finding,) = asyncio.run(store.findings())
    assert finding.problem.startswith(f"jobs use 0 of the 80 MB of {path}; the rest is free")
    assert finding.remedy.endswith(f"sqlite3 {path} VACUUM")


def test_a_relative_path_is_shown_as_the_absolute_one_it_became(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(Path("jobs.db"))
    monkeypatch.chdir("/")
    assert store.location == str(tmp_path / "jobs.db")


def test_a_missing_directory_is_reported_with_its_remedy(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "none" / "jobs.db")
    with pytest.raises(StoreUnavailable, match="does not exist; create it"):
        asyncio.run(store.open())
    with pytest.raises(StoreUnavailable, match="does not exist; create it"):
        store.enqueue_blocking([new(1)], PATIENCE)
    (tmp_path / "none").mkdir()
    store.enqueue_blocking([new(1)], PATIENCE)
    asyncio.run(store.close())


def test_a_directory_in_place_of_the_file_is_reported_with_its_remedy(tmp_path: Path) -> None:
    """Prevents a remedy about its owner and mode, and a lock file beside the directory."""
    directory = tmp_path / "dir.db"
    directory.mkdir()
    store = SqliteStore(directory)
    remedy = f"is a directory; name a file, for example sqlite:///{directory}/windlass.db"
    for action in (store.schema, store.open, store.migrate):
        with pytest.raises(StoreUnavailable, match=re.escape(remedy)):
            asyncio.run(action())
    with pytest.raises(StoreUnavailable, match=re.escape(remedy)):
        store.enqueue_blocking([new(1)], PATIENCE)
    assert [*tmp_path.rglob("*")] == [directory]


def test_a_store_can_be_closed_and_used_again(store: SqliteStore) -> None:
    async def main() -> None:
        for number in range(3):
            await store.enqueue([new(number + 1)])
            await store.close()
            await store.close()
        assert len((await store.find(JobFilter(), limit=10)).jobs) == 3

    asyncio.run(main())


def test_work_submitted_before_a_close_is_done(store: SqliteStore) -> None:
    async def main() -> None:
        writes = [asyncio.create_task(store.enqueue([new(n + 1)])) for n in range(50)]
        await asyncio.sleep(0)
        await store.open()
        await asyncio.gather(*writes, store.close(), return_exceptions=False)
        assert len((await store.find(JobFilter(), limit=100)).jobs) == 50

    asyncio.run(main())


def test_two_stores_on_one_file_in_one_process_see_each_others_jobs(path: Path) -> None:
    one, two = SqliteStore(path), SqliteStore(path)

    async def main() -> None:
        await asyncio.gather(
            *(store.enqueue([new(n * 2 + which)]) for n in range(50) for which, store in pair)
        )
        assert len((await one.find(JobFilter(), limit=200)).jobs) == 100
        first, second = await claim(one, 60, token=1), await claim(two, 60, token=2)
        assert len({job.id for job in first} | {job.id for job in second}) == 100
        assert (len(first), len(second)) == (60, 40)
        await one.close()
        await two.enqueue([new(1000)])
        assert len((await two.find(JobFilter(), limit=200)).jobs) == 101
        await two.close()

    pair = ((0, one), (1, two))
    asyncio.run(main())


def test_a_commit_of_another_store_wakes_waiting_workers(path: Path, store: SqliteStore) -> None:
    other = SqliteStore(path)

    async def main() -> None:
        sweep = await store.sweep()
        waiting = asyncio.create_task(store.wait(sweep.mark, timedelta(minutes=5)))
        await other.enqueue([new(1)])
        await asyncio.wait_for(waiting, 60)
        assert len((await store.sweep()).heads) == 1
        await other.close()

    asyncio.run(main())


def remove(path: Path) -> None:
    for each in path.parent.glob("jobs.db*"):
        if not each.name.endswith("-turn"):
            each.unlink()


def test_a_file_that_was_deleted_is_noticed_and_made_anew(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FILE_CHECK_SECONDS", 0)

    async def main() -> None:
        await store.enqueue([new(1)])
        assert await store.findings() == []
        remove(path)
        await store.enqueue([new(2)])
        assert [each.name for each in await store.findings()] == ["file_replaced"]
        jobs = (await store.find(JobFilter(), limit=10)).jobs
        assert [job.id for job in jobs] == [job_id(2, 2)]
        assert len((await store.sweep()).heads) == 1
        other = SqliteStore(path)
        assert len((await other.find(JobFilter(), limit=10)).jobs) == 1
        await other.close()

    asyncio.run(main())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_waiting_workers_are_woken_by_commits_to_the_new_file_too(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: after a restore from a backup, every job waits for the next poll."""
    monkeypatch.setattr(connection, "_FILE_CHECK_SECONDS", 0)

    async def main() -> None:
        await store.enqueue([new(1)])
        await store.sweep()
        remove(path)
        other = SqliteStore(path)
        await other.open()
        sweep = await store.sweep()
        assert sweep.heads == ()
        sweep = await store.sweep()
        waiting = asyncio.create_task(store.wait(sweep.mark, timedelta(minutes=5)))
        await other.enqueue([new(2)])
        await other.close()
        await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


# -- the writer ------------------------------------------------------------------------------


def test_an_operation_that_fails_undoes_itself_and_not_its_neighbours(
    store: SqliteStore, path: Path
) -> None:
    asyncio.run(store.open())
    writer = store._file.ready().writer
    gate, ready = threading.Event(), threading.Event()

    def block(db: sqlite3.Connection) -> None:
        ready.set()
        gate.wait(60)

    def good(number: int) -> Callable[[sqlite3.Connection], int]:
        return lambda db: (operations.enqueue(db, [new(number)], datetime.now(UTC)), number)[1]

    def bad(error: Exception) -> Callable[[sqlite3.Connection], None]:
        def work(db: sqlite3.Connection) -> None:
            operations.enqueue(db, [new(500)], datetime.now(UTC))
            raise error

        return work

    def torn(db: sqlite3.Connection) -> None:
        operations.enqueue(db, [new(501)], datetime.now(UTC))
        db.execute("INSERT INTO records (name, value) VALUES ('x', NULL)")

    first = writer.submit(block)
    assert ready.wait(60)
    answers: list[Future[Any]] = [
        writer.submit(good(1)),
        writer.submit(bad(ValueError("mine"))),
        writer.submit(good(2)),
        writer.submit(torn),
        writer.submit(good(3)),
    ]
    gate.set()
    first.result(10)
    assert [answers[place].result(10) for place in (0, 2, 4)] == [1, 2, 3]
    with pytest.raises(ValueError, match="mine"):
        answers[1].result(10)
    with pytest.raises(StoreError, match="records"):
        answers[3].result(10)
    jobs = asyncio.run(store.find(JobFilter(), limit=10)).jobs
    assert sorted(job.id for job in jobs) == [job_id(n, n) for n in (1, 2, 3)]


def test_operations_that_wait_for_the_writer_share_one_commit(store: SqliteStore) -> None:
    asyncio.run(store.open())
    writer = store._file.ready().writer
    gate, ready = threading.Event(), threading.Event()
    said: list[str] = []

    def block(db: sqlite3.Connection) -> None:
        db.set_trace_callback(said.append)
        ready.set()
        gate.wait(60)

    def insert(number: int, db: sqlite3.Connection) -> None:
        operations.enqueue(db, [new(number)], datetime.now(UTC))

    first = writer.submit(block)
    assert ready.wait(60)
    answers = [writer.submit(partial(insert, n + 1)) for n in range(100)]
    gate.set()
    for answer in (first, *answers):
        answer.result(10)
    assert said.count("COMMIT") == 2, "one for the piece that blocked, one for all the others"
    assert len(asyncio.run(store.find(JobFilter(), limit=200)).jobs) == 100


def test_an_operation_whose_caller_gave_up_is_not_done(store: SqliteStore) -> None:
    asyncio.run(store.open())
    writer = store._file.ready().writer
    gate, ready = threading.Event(), threading.Event()

    def block(db: sqlite3.Connection) -> None:
        ready.set()
        gate.wait(60)

    first = writer.submit(block)
    assert ready.wait(60)
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        store.enqueue_blocking([new(1)], timedelta(milliseconds=20))
    gate.set()
    first.result(10)
    assert asyncio.run(store.find(JobFilter(), limit=10)).jobs == ()


def test_a_damaged_file_is_reported_as_damaged(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.enqueue([new(n + 1) for n in range(500)]))
    asyncio.run(store.close())
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xaa" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="damaged"):
        asyncio.run(store.find(JobFilter(), limit=10))


@pytest.mark.parametrize(
    ("column", "steps", "saga", "told"),
    [
        ("headers", ("1",), Saga.READY, "headers; its completed steps are not undone"),
        ("headers", ("1",), None, "headers"),
        ("steps", (), Saga.UNDOING, "steps; its completed steps are not undone"),
    ],
)
def test_of_a_row_that_cannot_be_read_the_rest_is_kept(
    path: Path, column: str, steps: tuple[str, ...], saga: Saga | None, told: str
) -> None:
    """Prevents a log of steps that is gone since something else in the row was wrong."""

    async def main() -> Job | None:
        store = SqliteStore(path)
        await store.enqueue([new(1)])
        (job,) = await claim(store)
        checkpoint = Checkpoint(id=job.id, token=7, steps=("1",), saga=saga)
        assert await store.checkpoint([checkpoint]) == [True]
        await store.settle([Transition(id=job.id, token=7, state=State.PENDING)])
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"UPDATE jobs SET {column} = '{{bad'")
        assert await claim(store, token=8) == []
        found = await store.get(job.id)
        await store.close()
        return found

    job = asyncio.run(main())
    assert job is not None
    assert (job.state, job.steps, job.saga) == (State.DEAD, steps, saga)
    assert job.reason == f"its row cannot be read, so Windlass did not write it: {told}"


@contextmanager
def write_lock_held(path: Path) -> Iterator[None]:
    """Have the turn to write, as another process has."""
    with path.with_name(path.name + "-turn").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_write_lock_that_stays_held_is_an_error_and_nothing_is_written(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a write that hangs for ever, and one that is done after its caller was refused."""

    async def main() -> None:
        await store.open()
        with write_lock_held(path):
            with (
                monkeypatch.context() as briefly,
                pytest.raises(StoreUnavailable, match=rf"nothing was written.*{os.getpid()}"),
            ):
                briefly.setattr(file_access, "_LOCK_TIMEOUT_SECONDS", 0.1)
                await store.enqueue([new(1)])
            assert await store.counts() == []
        await store.enqueue([new(1)])
        assert [each.count for each in await store.counts()] == [1]

    asyncio.run(main())


def test_a_file_can_be_opened_read_and_closed_while_another_process_holds_the_write_lock(
    store: SqliteStore, path: Path
) -> None:
    async def main() -> None:
        await store.enqueue([new(1)])
        with write_lock_held(path):
            await store.close()
            assert [each.count for each in await store.counts()] == [1]
            await store.close()

    asyncio.run(main())


def test_a_write_that_holds_the_lock_is_not_given_up(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents large writes that fail for ever, since each try takes as long as the one before."""
    asyncio.run(store.enqueue([new(1)]))
    monkeypatch.setattr(file_access, "_LOCK_TIMEOUT_SECONDS", 1.0)

    def slow(records: object, now: object) -> Changes[str]:
        del records, now
        time.sleep(1.2)
        return Changes(answer="done")

    async def main() -> None:
        applied = await store.apply(["a"], slow)
        assert applied.answer == "done"

    asyncio.run(main())
