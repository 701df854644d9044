"""The grants in the docs are enough for producers and workers, and no more than they need."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from tests.docs.roles import prefix_of, with_own_roles
from tests.docs.test_docs import ON_POSTGRES, blocks_of
from tests.support.app_on_store import in_state, serving, until
from tests.support.clocked_stores import migrate
from windlass import Context, PermanentError, State, StoreError, Windlass
from windlass.cli.root_command import cli
from windlass.core.jobs.queries import JobFilter, Retention

READS = [
    "SELECT * FROM windlass.jobs",
    "SELECT * FROM windlass.job_queue",
    "INSERT INTO windlass.jobs (id, kind, payload) VALUES (gen_random_uuid(), 'x', '{}')",
    "DELETE FROM windlass.finished_jobs",
    "SELECT windlass.claim('x', 1" + ", '{}'" * 10 + ", true)",
    "SELECT windlass.prune('0', '0', '0', '0', 1)",
    "SELECT * FROM windlass.sweep()",
    "CREATE TABLE windlass.mine ()",
]


@pytest.fixture
def url(own_database: str) -> str:
    """A database with the schema, and with the grants that the docs show."""
    migrate(own_database)
    grants = [block.text for block in blocks_of(ON_POSTGRES) if "GRANT" in block.text]
    with psycopg.connect(own_database) as db:
        for text in grants:
            db.execute(with_own_roles(text, own_database).encode())
        # What the producer writes beside its jobs.
        db.execute("CREATE TABLE users (email text)")
        db.execute("GRANT ALL ON users TO PUBLIC")
    return own_database


def as_role(url: str, role: str) -> str:
    return url.replace("postgres@", f"{prefix_of(url)}{role}@")


def shop_at(url: str, **settings: Any) -> tuple[Windlass, Any]:
    app = Windlass(url, **settings)

    @app.job(max_retries=0)
    async def work(ctx: Context, how: str = "") -> str:
        if how == "fail":
            raise PermanentError("no")
        if how == "commit":
            async with ctx.transaction() as conn:
                await conn.execute("INSERT INTO users VALUES ('by the worker')")
        if how == "progress":
            ctx.progress(0.5)
        return how

    return app, work


def test_a_producer_can_only_enqueue(url: str) -> None:
    app, work = shop_at(as_role(url, "producer"))
    work.enqueue()
    work.using(delay="1h", unique="once").enqueue()
    assert work.using(unique="once").enqueue().is_duplicate
    app.enqueue_many([work.draft() for _ in range(50)])
    app.enqueue_many([work.using(unique=f"{n}").draft() for n in range(50)])
    with psycopg.connect(as_role(url, "producer")) as db:
        db.execute("INSERT INTO users VALUES ('x')")
        work.using(tx=db).enqueue()
        db.execute("""SELECT windlass.enqueue('{"kind": "work"}')""")

    async def main() -> None:
        handle = await work.aenqueue()
        await app.aenqueue_many([work.draft() for _ in range(50)])
        with pytest.raises(StoreError, match="lists the grants"):
            await handle.ainfo()
        assert (await app.store.schema()).serves

    asyncio.run(main())
    app.close()
    with psycopg.connect(url) as db:
        assert db.execute("SELECT count(*) FROM windlass.jobs").fetchone() == (155,)


@pytest.mark.parametrize("statement", READS)
def test_a_producer_may_do_nothing_else(url: str, statement: str) -> None:
    with (
        psycopg.connect(as_role(url, "producer")) as db,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        db.execute(statement.encode())


@pytest.mark.parametrize(
    ("take", "give"),
    [
        (
            "REVOKE INSERT ON windlass.finished_jobs FROM {}",
            "GRANT ALL ON windlass.finished_jobs TO {}",
        ),
        ("ALTER SCHEMA windlass RENAME TO other", "ALTER SCHEMA other RENAME TO windlass"),
    ],
)
def test_outcomes_that_a_worker_may_not_write_are_kept_until_it_may(
    url: str, take: str, give: str
) -> None:
    """Prevents jobs that succeeded from being dead, or run again, because a grant was missing."""
    app, _ = shop_at(as_role(url, "worker"))
    role = f"{prefix_of(url)}worker"

    @app.job
    async def succeed(ctx: Context) -> int:
        db.execute(take.format(role).encode())
        return ctx.attempt

    async def main() -> None:
        async with serving(app) as worker:
            handle = await succeed.aenqueue()
            await until(lambda: worker._parts.engine.completer.delayed)
            db.execute(give.format(role).encode())
            assert await handle.aresult("60s") == 1
        await app.aclose()

    with psycopg.connect(url, autocommit=True) as db:
        asyncio.run(main())


def test_an_outcome_that_a_worker_may_not_write_holds_up_no_other(url: str) -> None:
    app, work = shop_at(as_role(url, "worker"))
    role = f"{prefix_of(url)}worker"

    async def main() -> None:
        async with serving(app) as worker:
            dead = await work.aenqueue("fail")
            await until(lambda: worker._parts.engine.completer.delayed)
            await in_state(await work.aenqueue(), State.COMPLETED)
            assert await dead.astate() is State.RUNNING
            db.execute(f"GRANT ALL ON windlass.dead_jobs TO {role}".encode())
            assert (await in_state(dead, State.DEAD)).attempt == 1
        await app.aclose()

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"REVOKE INSERT ON windlass.dead_jobs FROM {role}".encode())
        asyncio.run(main())


def test_a_worker_can_do_everything_that_workers_do(url: str) -> None:
    app, work = shop_at(as_role(url, "worker"))

    async def main() -> None:
        async with serving(app, lease="1s") as worker:
            for how in ("", "commit", "progress"):
                await in_state(await work.aenqueue(how), State.COMPLETED)
            dead = await in_state(await work.aenqueue("fail"), State.DEAD)
            await app.aenqueue_many([work.draft() for _ in range(50)])
            await until(lambda: worker.processed == 54)
            await app.control.apause("mail")
            await app.control.aresume("mail")
            await work.using(delay="1h").aenqueue()
            await app.control.aredrive([dead.id])
            await until(lambda: worker.processed == 55)
            await in_state(app.handle(dead.id), State.DEAD)
            await app.control.apurge([dead.id])
            assert await app.store.rescue(worker=worker.id, token=1, limit=1) == []
            assert len((await app.store.find(JobFilter(), limit=100)).jobs) == 54
            assert await app.store.findings() == []
        with psycopg.connect(url) as db:
            db.execute(
                "UPDATE windlass.finished_jobs SET finished_at = day, slot = windlass.slot_of(day) "
                "FROM (SELECT now() - interval '9 days' AS day) AS past"
            )
        await app.store.prune(Retention(finished=timedelta(days=7)), 1000)
        with psycopg.connect(url) as db:
            assert db.execute("SELECT count(*) FROM windlass.finished_jobs").fetchone() == (0,)

    asyncio.run(main())
    app.close()


LOOKS = [
    ("stats",),
    ("doctor",),
    ("workers",),
    ("jobs", "list"),
    ("queues", "list"),
    ("dead", "list"),
    ("dead", "groups"),
    ("limits", "list"),
    ("schedules", "list"),
    ("breakers", "list"),
    ("flows", "list"),
]


def test_a_reader_can_look_at_everything(url: str) -> None:
    app, work = shop_at(url)
    waiting, other = work.enqueue(), work.using(delay="1h").enqueue()

    async def main() -> None:
        async with serving(app):
            await in_state(waiting, State.COMPLETED)

    asyncio.run(main())
    app.close()
    ids = str(waiting.id), str(other.id)
    jobs = [(*verb, each) for verb in (("jobs", "show"), ("why",)) for each in ids]
    for command in (*LOOKS, *jobs):
        done = CliRunner().invoke(cli, [*command, "--url", as_role(url, "reader")])
        # The doctor may find that no worker is alive, which is what it is asked for.
        assert done.exit_code == 0 or command == ("doctor",), (command, done.output)
        assert "permission denied" not in done.output
    with psycopg.connect(as_role(url, "reader")) as db:
        rows = db.execute("SELECT status, payload FROM windlass.job_queue").fetchall()
        assert {status for status, _ in rows} == {"completed", "scheduled"}


def test_a_reader_can_check_a_deploy(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, work = shop_at(url)
    work.enqueue()
    app.close()
    (tmp_path / "new_shop.py").write_text("from windlass import Windlass\napp = Windlass()\n")
    monkeypatch.syspath_prepend(tmp_path)
    call = ["check", "new_shop:app", "--against", as_role(url, "reader")]
    done = CliRunner().invoke(cli, call)
    assert done.exit_code == 1, done.output
    assert "no handler in the new code" in done.output
    assert "permission denied" not in done.output


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM windlass.jobs",
        "UPDATE windlass.records SET value = '{}'",
        "SELECT FROM windlass.jobs FOR UPDATE",
        "SELECT * FROM windlass.lock_records('{a}')",
        """SELECT windlass.enqueue('{"kind": "work"}')""",
        *READS[3:6],
        READS[-1],
    ],
)
def test_a_reader_may_change_nothing(url: str, statement: str) -> None:
    with (
        psycopg.connect(as_role(url, "reader")) as db,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        db.execute(statement.encode())


@pytest.mark.parametrize("statement", ["DELETE FROM windlass.migrations", READS[-1]])
def test_a_worker_may_not_change_the_schema(url: str, statement: str) -> None:
    with (
        psycopg.connect(as_role(url, "worker")) as db,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        db.execute(statement.encode())
