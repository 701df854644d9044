"""What only the SQLite store promises: about its file, its schema, its plans and its one writer."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
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

from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import SchemaMismatch, StoreError, StoreUnavailable
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Checkpoint, Job, Lane, NewJob, Saga
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo
from windlass.store.sql_files import Migration, load_statements
from windlass.store.sqlite import SqliteStore, connection, file, file_access, operations

STATEMENTS = load_statements("windlass.store.sqlite")
PATIENCE = timedelta(seconds=10)
LANE = Lane("default", "work")


def new(number: int, **fields: Any) -> NewJob:
    base: dict[str, Any] = {"id": job_id(number, number), "kind": "work", "payload": b"{}"}
    return NewJob(**base | fields)


async def worker(store: SqliteStore, name: str = "w") -> str:
    await store.register(
        WorkerInfo(id=name, name=name, host="h", pid=1, release="1", lease=PATIENCE, slots=10)
    )
    return name


async def claim(store: SqliteStore, count: int = 1000, token: int = 7) -> list[Job]:
    asks = (Ask(lane=LANE, count=count),)
    return await store.claim(Claim(asks=asks), worker=await worker(store), token=token)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    asyncio.run(made.close())


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
        remove(path)
        await store.enqueue([new(2)])
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


# -- the schema ------------------------------------------------------------------------------


def test_a_schema_that_is_newer_than_this_release_is_refused(
    store: SqliteStore, path: Path
) -> None:
    """Case 19. Prevents a release from working on a schema that it does not understand."""
    asyncio.run(store.enqueue([new(1)]))
    asyncio.run(store.close())
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {file.SCHEMA + 1}")
    db.close()
    with pytest.raises(SchemaMismatch, match="upgrade windlass here"):
        asyncio.run(store.open())
    with pytest.raises(SchemaMismatch):
        asyncio.run(store.migrate())
    assert file.schema_at(path) == file.SCHEMA + 1, "a refused file is left as it is"


def test_a_migration_is_done_once(store: SqliteStore, path: Path) -> None:
    assert file.schema_at(path) is None
    steps = asyncio.run(store.migrate())
    assert steps == [f"{each.number:04}_{each.name}" for each in file.MIGRATIONS]
    asyncio.run(store.enqueue([new(1)]))
    assert asyncio.run(store.migrate()) == []
    assert file.schema_at(path) == file.SCHEMA
    assert len(asyncio.run(store.find(JobFilter(), limit=10)).jobs) == 1


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [each.number for each in file.MIGRATIONS] == list(range(1, file.SCHEMA + 1))


def test_concurrent_opens_of_a_new_file_migrate_it_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]
    gate = threading.Barrier(8)
    done: list[list[str]] = []

    def migrate(store: SqliteStore) -> None:
        gate.wait(60)
        done.append(asyncio.run(store.migrate()))

    threads = [threading.Thread(target=migrate, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(len(each) for each in done) == [0] * 7 + [len(file.MIGRATIONS)]


def test_a_migration_that_fails_changes_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(store.enqueue([new(1)]))
    asyncio.run(store.close())
    broken = Migration(
        file.SCHEMA + 1, "broken", "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);"
    )
    with monkeypatch.context() as patch:
        patch.setattr(file, "MIGRATIONS", [*file.MIGRATIONS, broken])
        patch.setattr(file, "SCHEMA", broken.number)
        with pytest.raises(StoreError, match="nowhere"):
            asyncio.run(store.migrate())
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    db.close()
    assert file.schema_at(path) == file.SCHEMA
    assert len(asyncio.run(store.find(JobFilter(), limit=10)).jobs) == 1


def test_a_copy_of_the_file_is_a_store_of_its_own(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.enqueue([new(1)]))
    asyncio.run(store.close())
    copied = path.with_name("copy.db")
    shutil.copy(path, copied)
    other = SqliteStore(copied)
    asyncio.run(other.enqueue([new(2)]))
    assert len(asyncio.run(other.find(JobFilter(), limit=10)).jobs) == 2
    assert len(asyncio.run(store.find(JobFilter(), limit=10)).jobs) == 1
    asyncio.run(other.close())


# -- the statements and their plans ----------------------------------------------------------


def test_every_named_statement_is_used_and_every_used_name_exists() -> None:
    package = Path(file.__file__).parent
    source = "".join(each.read_text() for each in sorted(package.glob("*.py")))
    used = set(re.findall(r'(?:sql\[|holds\(db, )"(\w+)"', source))
    assert used == set(STATEMENTS)


def test_every_statement_says_what_it_is_for() -> None:
    assert [name for name, sql in STATEMENTS.items() if not sql.startswith("-- ")] == []


@pytest.fixture
def filled(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file with some jobs in every state, and no statistics."""

    async def fill() -> None:
        await store.enqueue([new(n + 1) for n in range(30)])
        taken = await claim(store, 20)
        outcomes = [State.COMPLETED, State.DEAD, State.SCHEDULED]
        await store.settle(
            [
                Transition(id=job.id, token=7, state=state, due=timedelta(hours=1))
                for job, state in zip(taken, outcomes * 5, strict=False)
            ]
        )
        await store.close()

    asyncio.run(fill())
    db = sqlite3.connect(path, isolation_level=None)
    yield db
    db.close()


PINNED: dict[str, tuple[str, ...]] = {
    "sweep_heads": ("jobs_lanes",),
    "next_due": ("jobs_due",),
    "claim_lane": ("jobs_lanes", "INTEGER PRIMARY KEY"),
    "complete_jobs": ("sqlite_autoindex_jobs_1",),
    "settle_job": ("sqlite_autoindex_jobs_1",),
    "record_progress": ("sqlite_autoindex_jobs_1",),
    "promote_jobs": ("jobs_due", "INTEGER PRIMARY KEY"),
    "rescue_is_due": ("jobs_held",),
    "orphaned_jobs": ("jobs_held",),
    "take_over_job": ("sqlite_autoindex_jobs_1",),
    "cancel_requests": ("jobs_held",),
    "prune_is_due": ("jobs_finished",),
    "prune_jobs": ("jobs_finished", "INTEGER PRIMARY KEY"),
    "get_job": ("sqlite_autoindex_jobs_1",),
    "free_unique_keys": ("sqlite_autoindex_jobs_1",),
}


@pytest.mark.parametrize("analysed", [False, True], ids=["fresh", "analysed"])
@pytest.mark.parametrize("name", PINNED)
def test_the_plan_of_a_hot_statement_walks_its_index_and_never_the_table(
    filled: sqlite3.Connection, name: str, analysed: bool
) -> None:
    if analysed:
        filled.execute("ANALYZE")
    plan = plan_of(filled, name)
    for index in PINNED[name]:
        assert any(index in step for step in plan), plan
    scans = [step for step in plan if re.match(r"SCAN jobs(?! USING (COVERING )?INDEX)", step)]
    assert scans == [], plan


def plan_of(db: sqlite3.Connection, name: str) -> list[str]:
    sql = STATEMENTS[name]
    named = set(re.findall(r":(\w+)", sql))
    values: Any = dict.fromkeys(named, 1)
    if not named:
        numbered = set(re.findall(r"\?(\d+)", sql))
        values = (1,) * (len(numbered) or re.sub(r"--.*", "", sql).count("?"))
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def test_the_claim_and_the_sweep_need_no_sorting(filled: sqlite3.Connection) -> None:
    for name in ("sweep_heads", "next_due", "claim_lane", "promote_jobs"):
        assert [step for step in plan_of(filled, name) if "TEMP B-TREE" in step] == [], name


def steps(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """Count the steps of SQLite's machine that some work takes, which no other load can change."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    db.execute("BEGIN IMMEDIATE")
    db.set_progress_handler(step, 1)
    try:
        work(db)
    finally:
        db.set_progress_handler(None, 1)
        db.execute("ROLLBACK")
    return count


def test_the_cost_of_the_hot_path_does_not_grow_with_what_is_finished_or_waits(
    store: SqliteStore, path: Path
) -> None:
    """Case 47, counted in steps of the machine below: what grows with the queue would show."""

    async def fill(first: int, count: int) -> None:
        await store.enqueue([new(first + n) for n in range(count)])

    asyncio.run(fill(1, 200))
    db = sqlite3.connect(path, isolation_level=None)

    def take(db: sqlite3.Connection) -> None:
        values = {**LANE._asdict(), "count": 10, "worker": "w", "token": 1, "now": 5}
        assert len(db.execute(STATEMENTS["claim_lane"], values).fetchall()) == 10

    def look(db: sqlite3.Connection) -> None:
        assert len(db.execute(STATEMENTS["sweep_heads"]).fetchall()) == 1
        db.execute(STATEMENTS["next_due"]).fetchone()

    def rescue(db: sqlite3.Connection) -> None:
        db.execute(STATEMENTS["rescue_is_due"], {"now": 5}).fetchone()
        db.execute(STATEMENTS["orphaned_jobs"], (100,)).fetchall()

    def promote(db: sqlite3.Connection) -> None:
        db.execute(STATEMENTS["promote_jobs"], (5, 1000))

    def settle(db: sqlite3.Connection) -> None:
        db.execute(STATEMENTS["free_unique_keys"], (f'["{job_id(1, 1)}"]',))

    def prune(db: sqlite3.Connection) -> None:
        horizons = {"finished": 0, "dead": None, "streams": 0, "workers": 0, "now": 0}
        assert db.execute(STATEMENTS["prune_is_due"], horizons).fetchone() == (0,)
        db.execute(STATEMENTS["prune_jobs"], ("completed", 0, 1000))

    work = (take, look, rescue, promote, settle, prune)
    before = [steps(db, each) for each in work]
    db.execute(
        """INSERT INTO jobs (id, kind, queue, priority, key, state, payload, due_at, created_at,
                             finished_at, attempt)
           WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
           SELECT printf('old-%d', i), 'work', 'default', 0, '',
                  CASE i % 3 WHEN 0 THEN 'completed' WHEN 1 THEN 'dead' ELSE 'cancelled' END,
                  '{}', i, i, i, 1 FROM n"""
    )
    asyncio.run(fill(10_000, 2_000))
    after = [steps(db, each) for each in work]
    db.close()
    grown = {
        each.__name__: (was, now)
        for each, was, now in zip(work, before, after, strict=True)
        if now > was * 1.2 + 20
    }
    assert grown == {}


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
    monkeypatch.setattr(file_access, "_LOCK_TIMEOUT_SECONDS", 0.1)

    async def main() -> None:
        await store.open()
        with write_lock_held(path):
            with pytest.raises(StoreUnavailable, match=rf"nothing was written.*{os.getpid()}"):
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
