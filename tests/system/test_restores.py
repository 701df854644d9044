"""Backups that are restored for real: no job that was done after its backup runs again unasked."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.app_on_store import QUICK
from tests.support.clocked_stores import migrate
from tests.support.ledger import Ledger
from tests.support.redis_server import RedisServer
from tests.system.debian import program
from tests.system.replication import Copy, Primary
from windlass import Context, Windlass
from windlass.core.jobs.states import State

JOBS = 20


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file of settings have a say."""
    monkeypatch.chdir(tmp_path)


class Shop:
    """An app on one store after the other, and the ledger of what its handlers did."""

    def __init__(self, directory: Path) -> None:
        self.ledger = Ledger(directory / "ledger")

    def at(self, url: str) -> Windlass:
        app = Windlass(url)

        @app.job(name="charge")
        async def charge(ctx: Context, order: int) -> None:
            self.ledger.write(str(order), ctx.job_id, ctx.attempt)

        return app

    def enqueue(self, url: str, orders: range) -> None:
        with closing(self.at(url)) as app:
            app.enqueue_many([app.producer("charge").draft({"order": each}) for each in orders])

    def work(self, url: str) -> None:
        self.run(url, lambda app: app.arun_worker(burst=True, **QUICK))

    def run(self, url: str, work: Callable[[Windlass], Awaitable[object]]) -> object:
        async def main() -> object:
            app = self.at(url)
            try:
                return await work(app)
            finally:
                await app.aclose()

        return asyncio.run(main())

    @property
    def done(self) -> list[int]:
        return sorted(int(entry.what) for entry in self.ledger.entries())


def check(shop: Shop, url: str, restore: Callable[[], str]) -> None:
    """Do jobs after their backup; restore it, park, and check that none of them is done twice."""
    shop.work(url)
    assert shop.done == list(range(JOBS))
    restored = restore()
    with closing(shop.at(restored)) as app:
        assert app.control.park_restored().jobs == JOBS
    shop.enqueue(restored, range(JOBS, JOBS + 5))
    shop.work(restored)
    assert shop.done == list(range(JOBS + 5)), "a job that was done ran again"

    async def decide(app: Windlass) -> None:
        found = await app.control.arestored(search="payload.order:7")
        assert len(await app.control.arelease_restored([job.id for job in found])) == 1
        left = await app.control.arestored()
        assert len(await app.control.acancel_restored([job.id for job in left])) == JOBS - 1

    shop.run(restored, decide)
    shop.work(restored)
    assert shop.done == sorted([*range(JOBS + 5), 7])
    with closing(shop.at(restored)) as app:
        assert app.jobs.count(states=[State.CANCELLED]) == JOBS - 1


@pytest.mark.timeout(300)
def test_a_base_backup_of_postgresql_runs_nothing_twice(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with Primary() as primary:
        name = f"windlass_{uuid4().hex[:12]}"
        url = primary.create_database(name)
        migrate(url)
        shop.enqueue(url, range(JOBS))
        with closing(Copy(primary, follows=False)) as backup:
            backup.back_up()

            def restore() -> str:
                primary.stop()
                backup.start()
                return backup.url(name)

            check(shop, url, restore)


@pytest.mark.timeout(300)
def test_a_dump_of_postgresql_runs_nothing_twice_and_is_noticed(tmp_path: Path) -> None:
    shop, dump = Shop(tmp_path), tmp_path / "dump"
    with Primary() as primary:
        url = primary.create_database("before")
        migrate(url)
        shop.enqueue(url, range(JOBS))
        _run("pg_dump", "--format=custom", f"--file={dump}", url)

        def restore() -> str:
            other = primary.create_database("after")
            _run("pg_restore", "--exit-on-error", f"--dbname={other}", str(dump))
            return other

        check(shop, url, restore)
        lineages = [
            shop.run(primary.url(name), lambda app: app.store.lineage())
            for name in ("before", "after")
        ]
        assert None not in lineages
        assert lineages[0] != lineages[1]


def test_a_file_of_sqlite_runs_nothing_twice(tmp_path: Path) -> None:
    shop, file, backup = Shop(tmp_path), tmp_path / "jobs.db", tmp_path / "backup.db"
    url = f"sqlite:///{file}"
    shop.enqueue(url, range(JOBS))
    with closing(sqlite3.connect(file)) as db:
        db.execute("VACUUM INTO ?", [str(backup)])

    def restore() -> str:
        for each in tmp_path.glob("jobs.db*"):
            each.unlink()
        shutil.copy(backup, file)
        return url

    check(shop, url, restore)


@pytest.mark.timeout(300)
def test_a_snapshot_of_redis_runs_nothing_twice(tmp_path: Path) -> None:
    shop, backup = Shop(tmp_path), tmp_path / "dump.rdb"
    directory = tmp_path / "redis"
    with RedisServer(directory, server=program("redis-server")) as server:
        shop.enqueue(server.url, range(JOBS))
        server.call("SAVE")
        shutil.copy(directory / "dump.rdb", backup)

        def restore() -> str:
            server.kill()
            shutil.copy(backup, directory / "dump.rdb")
            server.start()
            return server.url

        check(shop, server.url, restore)


def _run(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(program(name)), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
