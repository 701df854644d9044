"""The plugin opens an app with its application, hands it to route handlers, and closes it last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from litestar import Litestar, get, post
from litestar.di import Provide
from litestar.testing import TestClient

from windlass import ConfigError, StoreRefused, Windlass
from windlass.contrib.litestar import WindlassPlugin

if TYPE_CHECKING:
    # As many programs have it: the plugin knows the name.
    from windlass.contrib.litestar import WindlassApp


@get("/")
async def url(windlass: WindlassApp) -> str:
    return windlass.settings.url


def test_a_route_handler_takes_the_app_by_its_key() -> None:
    @get("/")
    async def other(background: WindlassApp) -> str:
        return background.settings.url

    with TestClient(Litestar([url], plugins=[WindlassPlugin(Windlass("memory://"))])) as client:
        assert client.get("/").text == "memory://"
    plugin = WindlassPlugin(Windlass("memory://"), key="background")
    with TestClient(Litestar([other], plugins=[plugin])) as client:
        assert client.get("/").text == "memory://"


def test_a_dependency_of_the_program_replaces_that_of_the_plugin() -> None:
    async def fake() -> Windlass:
        return Windlass("sqlite:///other.db")

    plugin = WindlassPlugin(Windlass("memory://"))
    program = Litestar([url], plugins=[plugin], dependencies={"windlass": Provide(fake)})
    with TestClient(program) as client:
        assert client.get("/").text == "sqlite:///other.db"


def test_a_worker_starts_after_the_hooks_of_the_program_and_drains_before_its_lifespan_ends() -> (
    None
):
    app, seen = Windlass("memory://"), list[str]()
    app.on_start(lambda: seen.append("worker starts"))
    app.on_shutdown(lambda: seen.append("worker ends"))

    @app.job
    async def slow() -> None:
        await asyncio.sleep(0)
        seen.append("job")

    @asynccontextmanager
    async def database(_: Litestar) -> AsyncIterator[None]:
        seen.append("database opens")
        yield
        await app.store.counts()  # It is still open.
        seen.append("database closes")

    @post("/")
    async def order() -> None:
        await (await slow.aenqueue()).aresult("60s")

    program = Litestar(
        [order],
        lifespan=[database],
        on_startup=[lambda: seen.append("startup")],
        on_shutdown=[lambda: seen.append("shutdown")],
        plugins=[WindlassPlugin(app, worker=True, poll_interval="20ms")],
    )
    for _ in range(2):
        seen.clear()
        with TestClient(program) as client:
            assert client.post("/").status_code == 201
        assert seen == [
            "database opens", "startup", "worker starts", "job", "worker ends", "database closes",
            "shutdown",
        ]  # fmt: skip


def test_an_application_can_be_started_again_with_the_same_app(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.job
    def plain(number: int) -> None: ...

    for number in range(2):
        with TestClient(Litestar([url], plugins=[WindlassPlugin(app)])):
            assert plain.enqueue(number).state() == "pending"


def test_a_store_that_cannot_be_opened_keeps_the_application_from_starting(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/missing/jobs.db")
    program = Litestar([url], plugins=[WindlassPlugin(app)])

    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as raised:
            async with program.lifespan():
                pass
        (error,) = raised.value.exceptions  # In a group of Litestar's.
        assert isinstance(error, StoreRefused)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"concurrency": 3}, "concurrency only for a worker; add worker=True"),
        ({"access": lambda _: None}, 'only for a page; add page="/jobs"'),
        ({"name": "production"}, 'only for a page; add page="/jobs"'),
    ],
)
def test_arguments_without_effect_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        WindlassPlugin(Windlass("memory://"), **arguments)
