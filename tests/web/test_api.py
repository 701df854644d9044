"""The API: the documents of `--json`, problems with remedies, and what OpenAPI says of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.web.viewing import TOKEN, of_role, seeded, shop, viewer
from windlass.core.documents import job_facts
from windlass.web.actions.registry import ACTIONS
from windlass.web.api.openapi import openapi_document
from windlass.web.api.routes import ENDPOINTS


def test_a_job_has_the_document_of_the_command_line() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web()) as script:
            for id_ in ids.values():
                job = await app.store.get(id_)
                assert job is not None
                assert (await script.get(f"/api/v1/jobs/{id_}")).json() == job_facts(job)

    asyncio.run(main())


def test_every_document_has_the_keys_that_are_described() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        operation = await app.control.astart_bulk("cancel", kind="charge")
        own = {"/flows/{id}": ids["flow"], "/bulk/{id}": operation.id}
        async with viewer(app.web()) as script:
            for endpoint in ENDPOINTS:
                id_ = own.get(endpoint.path, ids["dead"])
                answer = await script.get("/api/v1" + endpoint.path.replace("{id}", str(id_)))
                assert answer.status_code == 200, endpoint.path
                assert set(endpoint.keys) <= answer.json().keys(), endpoint.path

    asyncio.run(main())


def test_a_listing_is_searched_bounded_and_continued() -> None:
    async def main() -> None:
        app = shop()
        await app.aenqueue_many([app.producer("charge").draft({"cents": n}) for n in range(5)])
        async with viewer(app.web()) as script:
            query = {"search": "kind:charge", "limit": "3"}
            first = (await script.get("/api/v1/jobs", params=query)).json()
            rest = (
                await script.get("/api/v1/jobs", params={**query, "after": first["after"]})
            ).json()
            assert [len(first["jobs"]), len(rest["jobs"]), rest["after"]] == [3, 2, None]
            for wrong in ({"limit": "501"}, {"limit": "x"}, {"after": "x"}, {"colour": "red"}):
                answer = await script.get("/api/v1/jobs", params=wrong)
                assert answer.status_code == 422, wrong
                assert answer.json()["remedy"], wrong

    asyncio.run(main())


def test_a_problem_names_its_remedy() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web()) as script:
            data = {"id": str(ids["completed"])}
            answer = await script.post("/api/v1/actions/cancel-job", json=data)
            assert answer.status_code == 409
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert problem["status"] == 409
            assert "completed" in problem["detail"]
            for path in ("/api/v1/jobs/00000000", "/api/v1/nothing"):
                missing = await script.get(path)
                assert missing.status_code == 404
                assert missing.headers["content-type"] == "application/problem+json"

    asyncio.run(main())


def test_an_action_of_the_api_answers_with_a_document() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web(access=of_role("operator"))) as script:
            answer = await script.post(
                "/api/v1/actions/cancel-job", json={"id": str(ids["pending"])}
            )
            assert answer.json()["job"]["state"] == "cancelled"
            answer = await script.post("/api/v1/actions/pause-queue", json={"name": "mail"})
            assert answer.json()["changed"] is True
            for body in (b"{", b"[]", b'{"name": 5, "x": 1}', b"{}"):
                answer = await script.post("/api/v1/actions/pause-queue", content=body)
                assert answer.status_code in (400, 422), body
            huge = await script.post("/api/v1/actions/pause-queue", content=b"x" * 3_000_000)
            assert huge.status_code == 413

    asyncio.run(main())


def test_openapi_describes_every_route() -> None:
    described = openapi_document("/prefix")
    assert described["openapi"] == "3.1.0"
    assert {f"/api/v1{each.path}" for each in ENDPOINTS} <= described["paths"].keys()
    assert {f"/api/v1/actions/{each}" for each in ACTIONS} <= described["paths"].keys()


_APP = shop(web_token=TOKEN)
_SCHEMA: Any = schemathesis.openapi.from_asgi(
    "/api/v1/openapi.json", _APP.web(), headers={"Authorization": f"Bearer {TOKEN}"}
)


@pytest.mark.filterwarnings("ignore")
@_SCHEMA.parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_api_does_what_openapi_says(case: Any) -> None:
    # A schema cannot say which names and searches there are.
    case.call_and_validate(
        headers={"Authorization": f"Bearer {TOKEN}"}, excluded_checks=[positive_data_acceptance]
    )
