"""The lifespan opens and closes what it should, in order, and requests find their app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from windlass import ConfigError, StoreRefused, Windlass
from windlass.contrib.fastapi import WindlassApp
from windlass.contrib.fastapi import windlass_lifespan as fastapi_lifespan
from windlass.contrib.starlette import windlass_app, windlass_lifespan


def server(lifespan: Any) -> Starlette:
    """Return a server whose routes tell about the app of a request."""

    async def url(request: Request) -> JSONResponse:
        own = getattr(request.state, "database", None)
        return JSONResponse({"url": windlass_app(request).settings.url, "own": own})

    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(windlass_app(websocket).settings.url)
        await websocket.close()

    routes = [Route("/", url), WebSocketRoute("/talk", talk)]
    return Starlette(routes=routes, lifespan=lifespan)


def test_a_request_and_a_websocket_find_the_app() -> None:
    app = Windlass("memory://")
    with TestClient(server(windlass_lifespan(app))) as client:
        assert client.get("/").json() == {"url": "memory://", "own": None}
        with client.websocket_connect("/talk") as socket:
            assert socket.receive_text() == "memory://"


def test_a_server_can_be_started_again_with_the_same_app(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.job
    def plain(number: int) -> None: ...

    for number in range(2):
        with TestClient(server(windlass_lifespan(app))):
            assert plain.enqueue(number).state() == "pending"
    app.close()


def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/missing/jobs.db")
    with (
        pytest.raises(StoreRefused, match="does not exist"),
        TestClient(server(windlass_lifespan(app))),
    ):
        pass


def test_an_own_lifespan_is_around_the_worker_and_inside_the_store() -> None:
    app, seen = Windlass("memory://"), []

    @app.on_start
    def started() -> None:
        seen.append("worker starts")

    @app.on_shutdown
    def ended() -> None:
        seen.append("worker ends")

    @asynccontextmanager
    async def own(server: Any) -> AsyncIterator[dict[str, str]]:
        assert isinstance(server, Starlette)
        seen.append("own begins")
        yield {"database": "open"}
        seen.append("own ends")

    with TestClient(server(windlass_lifespan(app, worker=True, lifespan=own))) as client:
        assert client.get("/").json()["own"] == "open"
        seen.append("requests")
    order = ["own begins", "worker starts", "requests", "worker ends", "own ends"]
    assert seen == order


def test_a_worker_inside_runs_jobs_and_drains_at_the_end() -> None:
    app, begun, done = Windlass("memory://"), asyncio.Event(), []

    @app.job
    async def slow() -> None:
        begun.set()
        await asyncio.sleep(0)
        done.append("slow")

    async def ask(request: Request) -> JSONResponse:
        await slow.aenqueue()
        await begun.wait()
        return JSONResponse({})

    lifespan = windlass_lifespan(app, worker=True, poll_interval="20ms")
    with TestClient(Starlette(routes=[Route("/", ask)], lifespan=lifespan)) as client:
        client.get("/")
    assert done == ["slow"]


def test_flags_without_a_worker_are_refused() -> None:
    with pytest.raises(ConfigError, match="concurrency only for a worker; add worker=True"):
        windlass_lifespan(Windlass("memory://"), concurrency=3)


def test_a_request_without_the_lifespan_gets_the_remedy() -> None:
    with pytest.raises(ConfigError, match="pass lifespan=windlass_lifespan"):
        TestClient(server(None)).get("/")


def test_fastapi_gives_the_app_as_a_parameter_and_tests_replace_it() -> None:
    app, other = Windlass("memory://"), Windlass("memory://other")
    api = FastAPI(lifespan=fastapi_lifespan(app))

    @api.get("/")
    async def url(found: WindlassApp) -> bool:
        return found is app

    with TestClient(api) as client:
        assert client.get("/").json() is True
        api.dependency_overrides[windlass_app] = lambda: other
        assert client.get("/").json() is False
        assert "parameters" not in client.get("/openapi.json").json()["paths"]["/"]["get"]
