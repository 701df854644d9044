"""Handlers take the dependencies of FastAPI's routes, the very same ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Header, Query, Request, Security
from fastapi.security import OAuth2PasswordBearer
from fastapi.testclient import TestClient

from windlass import ConfigError, Inject, State, Windlass
from windlass.contrib.fastapi import WindlassApp, share_overrides, windlass_app, windlass_lifespan
from windlass.testing import travel

heard: list[str] = []


class Session:
    """What a route and a run have for themselves."""

    def __init__(self, name: str = "session") -> None:
        self.name = name


def get_url() -> str:
    heard.append("url")
    return "db"


async def get_session(url: Annotated[str, Depends(get_url)]) -> AsyncIterator[Session]:
    heard.append("open")
    yield Session(f"session of {url}")
    heard.append("close")


SessionDep = Annotated[Session, Depends(get_session)]


def get_report(session: SessionDep, url: str = Depends(get_url)) -> Iterator[str]:
    heard.append("open report")
    yield f"report in {session.name} at {url}"
    heard.append("close report")


class Paging:
    """A class as a dependency, in the short form."""

    def __init__(self, session: SessionDep, limit: int = 10) -> None:
        self.text = f"{session.name} {limit}"


def get_serial(serials: list[int] = []) -> int:  # noqa: B006 - it counts the calls.
    serials.append(1)
    return len(serials)


def get_jobs(app: WindlassApp) -> Windlass:
    return app


@pytest.fixture(autouse=True)
def silence() -> None:
    """Let every test hear only what it caused itself."""
    heard.clear()


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def result(app: Windlass, handler: Any) -> Any:
    """Run one job of a handler, and return its result."""
    with travel(app) as t:
        handle = handler.enqueue()
        t.run_due()
        assert handle.state() is State.COMPLETED, t.jobs()
        return handle.result()


def test_a_route_and_a_handler_have_the_same_dependencies_and_they_are_closed_after_both(
    app: Windlass,
) -> None:
    @app.job
    async def work(session: SessionDep = Inject, report: str = Depends(get_report)) -> str:
        heard.append("run")
        return f"{session.name}, {report}"

    api = FastAPI()

    @api.get("/")
    async def route(session: SessionDep, report: str = Depends(get_report)) -> str:
        heard.append("run")
        return f"{session.name}, {report}"

    answer = TestClient(api).get("/").json()
    in_a_request = list(heard)
    heard.clear()
    assert result(app, work) == answer == "session of db, report in session of db at db"
    assert heard == in_a_request
    assert heard == ["url", "open", "open report", "run", "close report", "close"]


def test_every_form_of_depends_is_known(app: Windlass) -> None:
    @app.job
    def work(
        bare: SessionDep,
        paging: Annotated[Paging, Depends()],
        first: Annotated[int, Depends(get_serial)],
        same: Annotated[int, Depends(get_serial)],
        other: Annotated[int, Depends(get_serial, use_cache=False)],
        secured: Annotated[str, Security(get_url)],
    ) -> list[object]:
        return [bare.name, paging.text, same - first, other - first, secured]

    assert result(app, work) == ["session of db", "session of db 10", 0, 1, "db"]


def get_request(request: Request) -> str:
    return str(request.url)


def get_header(x_token: Annotated[str | None, Header()] = None) -> str:
    return str(x_token)


def get_query(q: str = Query("all")) -> str:
    return q


def get_plain_query(q: str) -> str:
    return q


def get_tasks(tasks: BackgroundTasks) -> None: ...


def get_nested(q: str = Depends(get_query)) -> str:
    return q


bearer = OAuth2PasswordBearer(tokenUrl="token")
REQUESTS = [
    (get_request, "get_request takes `request: Request`"),
    (get_header, "get_header takes `x_token: str`"),
    (get_query, "get_query takes `q: str`"),
    (get_plain_query, "get_plain_query takes `q: str`"),
    (get_tasks, "get_tasks takes `tasks: BackgroundTasks`"),
    (get_nested, "get_query, which get_nested needs, takes `q: str`"),
    (bearer, "OAuth2PasswordBearer takes `request: "),
]


@pytest.mark.parametrize(("dependency", "why"), REQUESTS)
def test_a_dependency_that_needs_a_request_is_refused_at_registration(
    app: Windlass, dependency: Callable[..., Any], why: str
) -> None:
    async def work(value: str = Depends(dependency)) -> None: ...

    with pytest.raises(ConfigError, match=why) as refused:
        app.job(work)
    assert "kind 'work'" in str(refused.value)
    assert "only a web request has" in str(refused.value)
    assert "app.dependency_overrides[" in str(refused.value)


def test_jobs_may_have_another_dependency_than_requests(app: Windlass) -> None:
    app.dependency_overrides[get_request] = lambda: "http://shop.example/"

    @app.job
    async def work(url: Annotated[str, Depends(get_request)] = Inject) -> str:
        return url

    assert result(app, work) == "http://shop.example/"


def test_the_app_of_a_request_is_the_app_that_runs_the_job(app: Windlass) -> None:
    @app.job
    async def work(jobs: WindlassApp = Inject, same: Windlass = Depends(get_jobs)) -> bool:
        return jobs is app and same is app

    assert result(app, work) is True


def test_overrides_of_the_api_hold_for_handlers(app: Windlass) -> None:
    api = FastAPI()
    share_overrides(api, app)

    @app.job
    def work(report: str = Depends(get_report)) -> str:
        return report

    def fake(url: str = Depends(get_url)) -> Session:
        return Session(f"fake of {url}")

    api.dependency_overrides[get_session] = fake
    assert result(app, work) == "report in fake of db at db"
    api.dependency_overrides = {}
    assert result(app, work) == "report in session of db at db"


def test_overrides_hold_for_a_worker_in_the_server(app: Windlass) -> None:
    @app.job
    async def work(jobs: WindlassApp = Inject, session: SessionDep = Inject) -> str:
        return f"{jobs.settings.url} {session.name}"

    api = FastAPI(lifespan=windlass_lifespan(app, worker=True, poll_interval="20ms"))
    other = Windlass("sqlite:///other.db")
    api.dependency_overrides = {
        get_session: lambda: Session("fake"),
        windlass_app: lambda: other,
    }

    @api.get("/")
    async def route() -> str:
        handle = await work.aenqueue()
        return await handle.aresult("60s")

    with TestClient(api) as client:
        assert client.get("/").json() == "sqlite:///other.db fake"
    assert get_session not in app.providers.overrides_in_force()
