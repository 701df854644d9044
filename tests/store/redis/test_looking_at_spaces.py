"""Looking at an app with spaces finds the jobs of all, or the figures of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.app_on_store import serving, until
from tests.support.redis_server import RedisServer
from tests.support.redis_spaces import app_at, used
from windlass import ConfigError, State, StoreUnavailable, Windlass
from windlass.core.jobs.queries import Page, filter_of
from windlass.core.jobs.spaces import Space
from windlass.core.search.scan import Budget
from windlass.store.redis import RedisStore
from windlass.store.spaces import SpacedStore


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def test_looking_finds_the_jobs_of_all_spaces_in_order(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds:
            ids = []
            for number in range(9):
                queue = ("default", "mail", "import")[number % 3]
                handle = await kinds["send"].using(queue=queue).aenqueue({"number": number})
                ids.append(handle.id)
            found = await app.jobs.afind(limit=5)
            assert [job.id for job in found.jobs] == ids[:3:-1]
            found = await app.jobs.afind(limit=5, after=found.after)
            assert [job.id for job in found.jobs] == ids[3::-1]
            assert found.after is None
            assert (await app.control.awhy(ids[1])).job.queue == "mail"
            assert await app.control.acancel_where(kind="send") == 9
            assert len(await app.control.apurge(ids)) == 9

    asyncio.run(main())


@pytest.mark.parametrize("oldest_first", [False, True])
def test_a_bounded_search_passes_no_job_of_any_space(
    server: RedisServer, oldest_first: bool
) -> None:
    """Prevents: a space whose budget is spent early loses the jobs that another has passed."""

    async def main() -> None:
        app = app_at(server.url)
        async with used(app) as kinds:
            ids = []
            for number in range(40):
                queue = "mail" if number % 4 == 0 or number < 12 else "default"
                handle = await kinds["send"].using(queue=queue).aenqueue({"number": number % 3})
                ids.append(handle.id)
            which = filter_of({"search": "payload.number:1"})
            found: list[Any] = []
            page = Page(jobs=(), after=None)
            while page.after is not None or not found:
                page = await app.store.find(
                    which,
                    limit=3,
                    after=page.after,
                    oldest_first=oldest_first,
                    budget=Budget(rows=4),
                )
                found += [job.id for job in page.jobs]
            wanted = [job_id for number, job_id in enumerate(ids) if number % 3 == 1]
            assert found == (wanted if oldest_first else wanted[::-1])

    asyncio.run(main())


def test_figures_that_each_space_keeps_are_those_of_the_chosen_one(server: RedisServer) -> None:
    async def main() -> None:
        app = app_at(server.url)
        mail = app_at(server.url, space="mail")
        async with used(app) as kinds, used(mail):
            for space in ("default", "mail"):
                store = app.store.of_space(space)  # type: ignore[attr-defined]
                await store.migrate()
            await kinds["send"].aenqueue({"number": 1})
            await kinds["plain"].aenqueue({"number": 1})
            stats = await mail.astats()
            assert [each.name for each in stats.queues] == ["mail"]
            async with serving(app, space="mail"), serving(app, space="default"):

                async def is_refused() -> bool:
                    try:
                        await app.astats()
                    except ConfigError as error:
                        return "name one with --space" in str(error)
                    return False

                await until(is_refused)

    asyncio.run(main())


def test_a_space_that_is_away_hides_no_job_of_another(server: RedisServer, tmp_path: Path) -> None:
    spaces = (Space("mail", ("mail",)),)

    async def main(other: RedisServer) -> None:
        stores = {"default": RedisStore(server.url), "mail": RedisStore(other.url)}
        app = Windlass("memory://")
        app.store = SpacedStore(stores, spaces, chosen=None)

        @app.job
        async def plain() -> None: ...

        first, second = [await plain.using(queue=queue).aenqueue() for queue in ("default", "mail")]
        other.kill()
        assert await first.acancel() is State.CANCELLED
        with pytest.raises(StoreUnavailable):
            await second.astate()
        await app.aclose()

    with RedisServer(tmp_path / "other") as other:
        asyncio.run(main(other))
