"""The login of the program that mounts the page: what it may answer, and when it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tests.web.viewing import of_role, seeded, shop, viewer
from windlass.web.access.security_headers import HEADERS


def _answer(access: Any, path: str = "/jobs") -> Any:
    async def main() -> Any:
        async with viewer(shop().web(access=access)) as person:
            return await person.get(path)

    return asyncio.run(main())


def test_a_login_may_send_people_to_a_page_of_its_own() -> None:
    def access(_request: Request) -> Response:
        return RedirectResponse("/login?next=/jobs", status_code=303)

    answer = _answer(access)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/jobs")


@pytest.mark.parametrize("path", ["/jobs", "/api/v1/stats"])
def test_a_login_that_refuses_by_an_exception_is_answered_as_it_says(path: str) -> None:
    def access(_request: Request) -> None:
        raise HTTPException(401, "your session has ended; log in again")

    answer = _answer(access, path)
    assert answer.status_code == 401
    assert "log in again" in answer.text
    assert all(answer.headers[name] == value for name, value in HEADERS.items())


@pytest.mark.parametrize("path", ["/jobs", "/api/v1/stats"])
def test_a_login_that_fails_shows_nothing_of_the_error_and_logs_it(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    def access(_request: Request) -> None:
        raise RuntimeError("password of the directory is hunter2")

    answer = _answer(access, path)
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert all(answer.headers[name] == value for name, value in HEADERS.items())
    assert (answer.headers["content-type"] == "application/problem+json") is path.startswith("/api")
    (record,) = [each for each in caplog.records if "web.broken" in each.getMessage()]
    assert record.exc_info is not None


def test_people_who_see_no_payloads_are_offered_no_form_to_edit_them() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        for payloads in (True, False):
            access = of_role("admin", payloads=payloads)
            async with viewer(app.web(access=access)) as person:
                page = await person.get(f"/jobs/{ids['dead']}")
                assert ("/actions/edit-job?" in page.text) is payloads

    asyncio.run(main())
