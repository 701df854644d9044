"""The web page is mounted in a Litestar application, behind its middleware, guards and login."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from litestar import Litestar
from litestar.config.csrf import CSRFConfig
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers.base import BaseRouteHandler
from litestar.testing import TestClient

from windlass import State, Windlass
from windlass.contrib.litestar import WindlassPlugin
from windlass.web import Access, Role

ROLES = {"ada": Role.OPERATOR, "bob": Role.VIEWER}
Connection = ASGIConnection[Any, Any, Any, Any]


def logged_in(connection: Connection, _: BaseRouteHandler) -> None:
    if "user" not in connection.cookies:
        raise NotAuthorizedException


async def access(connection: Connection) -> Access | None:
    # It is Litestar's own connection, of the mounted handler.
    assert isinstance(connection.app, Litestar)
    assert connection.route_handler.handler_name == "windlass_page"
    assert connection.url.path.startswith(connection.scope["root_path"])
    who = connection.cookies["user"]
    return Access(who=who, role=ROLES[who]) if who in ROLES else None


@pytest.fixture
def app() -> Windlass:
    app = Windlass("memory://")

    @app.job
    async def send(order: int) -> None: ...

    return app


@pytest.fixture(params=["", "/shop"])
def client(app: Windlass, request: pytest.FixtureRequest) -> Iterator[TestClient[Litestar]]:
    plugin = WindlassPlugin(
        app, page="admin/jobs/", access=access, guards=[logged_in], name="production"
    )
    program = Litestar([], plugins=[plugin], csrf_config=CSRFConfig(secret="x" * 32))
    with TestClient(program, root_path=request.param) as client:
        yield client


def test_guards_of_the_program_come_before_the_page(client: TestClient[Litestar]) -> None:
    assert client.get("/admin/jobs").status_code == 401
    assert client.get("/admin/jobs/kinds").status_code == 401


def test_access_decides_who_sees_the_page_and_its_links_have_its_path(
    client: TestClient[Litestar], request: pytest.FixtureRequest
) -> None:
    root = request.node.callspec.params["client"]
    client.cookies.set("user", "eve")
    assert client.get("/admin/jobs/kinds").status_code == 403
    client.cookies.set("user", "bob")
    page = client.get("/admin/jobs/kinds")
    assert page.status_code == 200
    assert "production" in page.text
    assert f'href="{root}/admin/jobs/queues' in page.text
    assert client.get("/admin/jobs").status_code == 200
    assert client.get("/admin/jobs/nowhere").status_code == 404


def test_an_operator_acts_on_the_page_and_a_viewer_does_not(
    client: TestClient[Litestar], app: Windlass
) -> None:
    handle = app.producer("send").enqueue({"order": 7})
    assert act(client, "bob", handle.id) == 403
    assert act(client, "ada", handle.id, origin="https://evil.example") == 403
    assert handle.state() is State.PENDING
    assert act(client, "ada", handle.id) == 303
    assert handle.state() is State.CANCELLED


def act(client: TestClient[Litestar], who: str, job: UUID, origin: str | None = None) -> int:
    """Cancel a job on the page, and return the status of the answer."""
    client.cookies.set("user", who)
    headers = {"origin": origin or str(client.base_url)}
    answer = client.post(
        "/admin/jobs/actions/cancel-job",
        data={"id": str(job)},
        headers=headers,
        follow_redirects=False,
    )
    return answer.status_code
