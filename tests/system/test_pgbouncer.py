"""PgBouncer in transaction mode: a connection is somebody else's after every commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.app_on_store import in_state, serving, until
from tests.support.clocked_stores import opened
from tests.system.bouncer import PgBouncer
from windlass import Context, State, SyncContext, Windlass
from windlass.core.jobs.queries import Finding
from windlass.store import Store

POOLERS_OWN = {
    "application_name",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "standard_conforming_strings",
    "TimeZone",
}
"""Settings that the pooler itself carries over from client to client."""
LEFTOVERS = """
SELECT 'prepared ' || statement FROM pg_prepared_statements
UNION ALL SELECT 'listening ' || pg_listening_channels()
UNION ALL SELECT 'setting ' || name FROM pg_settings
WHERE source = 'session' AND name <> ALL (%s)
UNION ALL SELECT 'lock ' || objid FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE is_holdable
UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relpersistence = 't'
"""


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file of settings have a say."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def app(migrated_url: str, bouncer: PgBouncer) -> Iterator[Windlass]:
    """Give an app that goes through the pooler, and listens at the server itself."""
    made = Windlass(bouncer.through(migrated_url), listen_url=migrated_url)
    yield made
    made.close()


def servers_of(bouncer: PgBouncer, url: str) -> list[dict[str, Any]]:
    """Return the pooler's own connections to a database."""
    database = urlsplit(url).path.removeprefix("/")
    return [server for server in bouncer.show("SERVERS") if server["database"] == database]


def leftovers(bouncer: PgBouncer, url: str) -> list[str]:
    """Return what sessions have left in the pooler's connections to a database."""
    left = []
    with ExitStack() as stack:
        # Each holds a transaction open, so that no two of them look into the same session.
        for _ in servers_of(bouncer, url):
            db = stack.enter_context(psycopg.connect(bouncer.through(url), prepare_threshold=None))
            left += [row[0] for row in db.execute(LEFTOVERS, [list(POOLERS_OWN)])]
    return left


def test_the_pooler_pools_transactions(bouncer: PgBouncer, migrated_url: str) -> None:
    with psycopg.connect(bouncer.through(migrated_url)) as db:
        db.execute("SELECT 1")
        (pool,) = [pool for pool in bouncer.show("POOLS") if pool["database"] in migrated_url]
        assert (pool["pool_mode"], pool["cl_active"], pool["sv_active"]) == ("transaction", 1, 1)
        db.commit()
        assert [server["state"] for server in servers_of(bouncer, migrated_url)] == ["idle"]


def test_a_worker_works_through_the_pooler_and_leaves_nothing_behind(
    app: Windlass, bouncer: PgBouncer, migrated_url: str
) -> None:
    @app.job(max_retries=0)
    async def work(number: int) -> int:
        if number % 50 == 7:
            raise ValueError(number)
        return number

    @app.job
    def block(ctx: SyncContext) -> str:
        ctx.progress(0.5)
        return "done"

    async def run() -> None:
        # Before there is a worker: one call that copies, and some that do not.
        await app.aenqueue_many(work.draft(number) for number in range(500))
        async with serving(app, claim_size=20):
            await until(lambda: app.store.listening)
            for number in range(1_000, 1_050):
                await work.aenqueue(number)
            await app.aenqueue_many(block.draft() for _ in range(10))
            await until(lambda: counted(app.store, 549, dead=11), within=30)
            assert await app.store.findings() == []
        await app.aclose()

    asyncio.run(run())
    # All of that went through the pooler, more clients than it has connections.
    assert len(servers_of(bouncer, migrated_url)) > 1
    assert leftovers(bouncer, migrated_url) == []


async def counted(store: Store, completed: int, *, dead: int = 0) -> bool:
    """Say whether so many jobs have ended, and none is left."""
    counts: Counter[State] = Counter()
    for each in await store.counts():
        counts[each.state] += each.count
    return +counts == Counter({State.COMPLETED: completed, State.DEAD: dead}) + Counter()


def test_a_listener_behind_a_pooler_detects_it_and_polls(
    bouncer: PgBouncer, migrated_url: str
) -> None:
    """A probe that one session sends to itself would come back even through a pooler."""
    app = Windlass(bouncer.through(migrated_url))

    @app.job
    async def work() -> int:
        return 7

    async def run() -> list[Finding]:
        async with eavesdropping(migrated_url) as probes, serving(app):
            await in_state(await work.aenqueue(), State.COMPLETED)
            # The second comes once the first is given up.
            await until(lambda: app.store.listening or len(probes) > 1, within=30)
            assert not app.store.listening
            await in_state(await work.aenqueue(), State.COMPLETED)
            found = await app.store.findings()
        await app.aclose()
        return found

    (finding,) = asyncio.run(run())
    assert "WINDLASS_LISTEN_URL" in finding.remedy


@asynccontextmanager
async def eavesdropping(url: str) -> AsyncIterator[list[str]]:
    """Collect the probes of all who want to know whether they hear."""
    probes: list[str] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute("LISTEN windlass_jobs")

        async def collect() -> None:
            async for notice in db.notifies():
                if notice.payload.startswith("probe "):
                    probes.append(notice.payload)

        task = asyncio.create_task(collect())
        try:
            yield probes
        finally:
            task.cancel()
            await asyncio.wait({task})


def test_a_worker_configured_to_poll_is_not_reported_as_deaf(
    bouncer: PgBouncer, migrated_url: str
) -> None:
    app = Windlass(bouncer.through(migrated_url), listen_url="off")

    @app.job
    async def work() -> int:
        return 7

    async def run() -> None:
        async with serving(app):
            await in_state(await work.aenqueue(), State.COMPLETED)
            assert await app.store.findings() == []
        await app.aclose()

    asyncio.run(run())
    assert leftovers(bouncer, migrated_url) == []


def test_a_transaction_of_a_handler_commits_its_work_with_its_job(
    app: Windlass, bouncer: PgBouncer, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as db:
        db.execute("CREATE TABLE notes (text text)")

    @app.job(max_retries=0)
    async def note(ctx: Context, text: str) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO notes VALUES (%s)", [text])
            if text == "bad":
                raise ValueError(text)

    @app.job(max_retries=0)
    def note_blocking(ctx: SyncContext, text: str) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT INTO notes VALUES (%s)", [text])
            if text == "bad":
                raise ValueError(text)

    async def run() -> None:
        async with serving(app):
            for job in (note, note_blocking):
                await in_state(await job.aenqueue("good"), State.COMPLETED)
                await in_state(await job.aenqueue("bad"), State.DEAD)
        await app.aclose()

    asyncio.run(run())
    with psycopg.connect(migrated_url) as db:
        assert db.execute("SELECT text FROM notes").fetchall() == [("good",), ("good",)]
    assert leftovers(bouncer, migrated_url) == []


def test_a_job_enqueued_in_a_transaction_is_there_with_its_commit(
    app: Windlass, bouncer: PgBouncer, migrated_url: str
) -> None:
    @app.job
    async def work() -> None: ...

    with psycopg.connect(bouncer.through(migrated_url), prepare_threshold=None) as db:
        gone = work.using(tx=db).enqueue()
        db.rollback()
        kept = work.using(tx=db).enqueue()
        db.commit()

    async def there() -> list[bool]:
        async with opened(migrated_url) as store:
            return [await store.get(handle.id) is not None for handle in (gone, kept)]

    assert asyncio.run(there()) == [False, True]


def test_a_worker_outlives_its_pooler(app: Windlass, bouncer: PgBouncer, migrated_url: str) -> None:
    @app.job
    async def work(number: int) -> int:
        return number

    async def run() -> None:
        async with opened(migrated_url) as direct, serving(app):
            await in_state(await work.aenqueue(1), State.COMPLETED)
            bouncer.stop()
            await direct.enqueue([work.draft(number).job for number in range(100)])
            bouncer.start()
            await until(lambda: counted(direct, 101), within=30)
        await app.aclose()

    asyncio.run(run())
