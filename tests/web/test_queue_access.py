"""A person limited to some queues sees and changes nothing of the others, on every route."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.web.queue_scene import MARK, OWN, Scene, queue_app, seeded_queues
from tests.web.viewing import of_role, viewer
from windlass import ConfigError
from windlass.web import Access
from windlass.web.actions.registry import ACTIONS
from windlass.web.api.routes import API_ROUTES
from windlass.web.asgi import PAGE_ROUTES

_WITHOUT_JOBS = {"/login", "/logout", "/events", "/static/{release}/{name}", "/favicon.ico"}
"""Routes without data: the stream of events names only what changed, like `jobs`."""
_PREFIX_DIGITS = 24


def _addresses(scene: Scene, path: str) -> list[str]:
    """Return addresses of a route, with ids and names of both queues."""
    if "{name:path}" in path:
        names = [*OWN, "shared", "send_email", f"{MARK}-queue", f"{MARK}_kind", "no such thing"]
        return [path.replace("{name:path}", each) for each in names]
    if "{id}" not in path:
        return [path]
    ids = [*scene.own.values(), *scene.other.values(), scene.flow, scene.bulk, scene.own_bulk]
    whole = [str(each) for each in ids]
    beginnings = [each.replace("-", "")[:_PREFIX_DIGITS] for each in whole]
    return [path.replace("{id}", each) for each in (*whole, *beginnings)]


def _queries(path: str) -> list[dict[str, str]]:
    searches = [
        "",
        f"queue:{MARK}-queue",
        f"queue:mail,{MARK}-queue",
        "queue:*",
        "-queue:mail",
        f"queue:{MARK[:2]}* state:dead",
        f'kind:{MARK}_kind "{MARK}"',
        "state:dead",
    ]
    match path:
        case "/jobs":
            # The page repeats the search that was typed; every other trace is the store's.
            return [{"q": each} for each in searches if MARK not in each]
        case "/jobs/{id}/stream":
            return [{"wait": "no"}]
        case "/api/v1/jobs":
            return [{"search": each} for each in searches]
        case "/api/v1/suggestions":
            fields = ("", "queue:", "kind:", "worker:", "error:", "key:", "-queue:mail,")
            return [{"search": each} for each in fields]
        case "/errors" | "/api/v1/errors":
            return [{}, {"kind": "shared"}]
        case "/api/v1/stats":
            return [{}, {"queue": f"{MARK}-queue"}, {"kind": f"{MARK}_kind"}, {"kind": "shared"}]
    return [{}]


def _answers_of(path: str) -> bool:
    return path not in _WITHOUT_JOBS


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_no_route_shows_anything_of_another_queue(role: str) -> None:
    async def main() -> None:
        scene = await seeded_queues()
        async with viewer(scene.app.web(access=of_role(role, queues=OWN))) as person:
            seen = 0
            for route in (*PAGE_ROUTES, *API_ROUTES):
                if "GET" not in (route.methods or ()) or not _answers_of(route.path):
                    continue
                if "{action}" in route.path:
                    continue
                plain = route.path.replace("{id}", "").replace("{name:path}", "")
                assert "{" not in plain, f"{route.path} needs a sample"
                for address in _addresses(scene, route.path):
                    for query in _queries(route.path):
                        answer = await person.get(address, params=query)
                        assert answer.status_code < 500, (address, query)
                        if MARK in address:  # The answer repeats a name that it does not know.
                            assert answer.status_code == 404, address
                            continue
                        assert MARK not in _said(answer), (address, query)
                        seen += answer.status_code == 200
            assert seen > 20

    asyncio.run(main())


def _said(answer: httpx.Response) -> str:
    """Return what an answer says; a problem repeats the address that was asked for."""
    return f"{answer.text} {answer.headers.get('location', '')}"


@pytest.mark.parametrize("scripted", [False, True], ids=["page", "api"])
def test_no_action_changes_or_shows_anything_of_another_queue(scripted: bool) -> None:
    async def main() -> None:
        scene = await seeded_queues()
        before = await _state_of(scene)
        page = scene.app.web(access=of_role("admin", queues=OWN))
        async with viewer(page) as person:
            for name in ACTIONS:
                for given in _fields(scene, name):
                    asked = await person.get(f"/actions/{name}", params=given)
                    answers = [asked]
                    if scripted:
                        path = f"/api/v1/actions/{name}"
                        answers.append(await person.post(path, json=_typed(given)))
                    else:
                        answers.append(await person.post(f"/actions/{name}", data=given))
                    for answer in answers:
                        assert answer.status_code in (403, 404, 422), (name, given, answer.text)
                        shown = answer.text
                        for value in given.values():
                            shown = shown.replace(value, "")
                        if "search" not in given:
                            assert MARK not in shown, (name, given)
        assert await _state_of(scene) == before

    asyncio.run(main())


def _typed(given: dict[str, str]) -> dict[str, Any]:
    return {
        name: {"text": "x"} if name == "payload" else int(value) if value.isdigit() else value
        for name, value in given.items()
    }


def _fields(scene: Scene, action: str) -> list[dict[str, str]]:
    """Return forms that would change another queue, or several."""
    subject = action.partition("-")[2]
    match subject:
        case "job":
            return [{"id": str(each)} for each in (*scene.other.values(), scene.flow)]
        case "jobs":
            state = "state:dead" if action != "cancel-jobs" else "state:pending"
            return [{"search": f"queue:{MARK}-queue {state}"}, {"search": f"queue:zz* {state}"}]
        case "bulk":
            return [{"id": str(scene.bulk)}]
        case "queue":
            return [{"name": f"{MARK}-queue"}]
        case "limit":
            return [{"name": f"{MARK}-limit", "concurrency": "9"}]
        case "":
            return [{"kind": "send_email", "payload": '{"text": "x"}', "queue": f"{MARK}-queue"}]
    return [{"name": f"{MARK}-hourly" if subject == "schedule" else "both"}]


async def _state_of(scene: Scene) -> Any:
    app = scene.app
    jobs = {each: await app.store.get(each) for each in scene.other.values()}
    found = await app.jobs.afind(limit=500)
    return (
        {each: job and (job.state, job.payload) for each, job in jobs.items()},
        await app.control.apaused(),
        [(each.name, each.concurrency) for each in await app.control.alimits()],
        sorted((str(job.id), job.queue) for job in found.jobs if job.queue not in OWN),
        sorted((str(each.id), each.state) for each in await app.control.abulks()),
        sorted(each.name for each in await app.schedules.alist()),
    )


def test_every_address_of_a_foreign_job_says_what_one_of_no_job_says() -> None:
    async def main() -> None:
        scene = await seeded_queues()
        nobody = UUID("0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
        async with viewer(scene.app.web(access=of_role("admin", queues=OWN))) as person:
            for path in ("/jobs/{}", "/api/v1/jobs/{}", "/api/v1/jobs/{}/why", "/api/v1/flows/{}"):
                missing = await person.get(path.format(nobody))
                assert missing.status_code == 404
                for job in (*scene.other.values(), scene.flow):
                    answer = await person.get(path.format(job))
                    assert answer.status_code == 404, path
                    assert answer.text.replace(str(job), "") == missing.text.replace(
                        str(nobody), ""
                    )

    asyncio.run(main())


def test_a_limited_person_sees_and_acts_on_the_own_queues() -> None:
    async def main() -> None:
        scene = await seeded_queues()
        async with viewer(scene.app.web(access=of_role("admin", queues=OWN))) as person:
            listed = (await person.get("/api/v1/jobs")).json()["jobs"]
            assert {each["queue"] for each in listed} == {"mail"}
            stats = (await person.get("/api/v1/stats")).json()
            assert [each["name"] for each in stats["queues"]] == ["mail"]
            assert {each["kind"] for each in stats["errors"]} == {"fail", "shared"}
            groups = (await person.get("/api/v1/errors")).json()["groups"]
            assert {each["kind"]: each["count"] for each in groups} == {"fail": 1, "shared": 1}
            redriven = await person.post(
                "/api/v1/actions/redrive-job", json={"id": str(scene.own["dead"])}
            )
            assert redriven.status_code == 200
            paused = await person.post("/api/v1/actions/pause-queue", json={"name": "mail"})
            assert paused.json()["changed"]
            entries = (await person.get("/api/v1/audit")).json()["entries"]
            assert [(each["action"], each["by"]) for each in entries[:2]] == [
                ("pause", "ada"),
                ("redrive", "ada"),
            ]
            added = await person.post(
                "/api/v1/actions/enqueue", json={"kind": "send_email", "payload": {"to": "x"}}
            )
            assert added.status_code == 200
            bulks = (await person.get("/api/v1/bulk")).json()["bulks"]
            assert [each["id"] for each in bulks] == [str(scene.own_bulk)]

    asyncio.run(main())


def test_a_bulk_operation_of_a_limited_person_is_narrowed_to_the_own_queues() -> None:
    async def main() -> None:
        scene = await seeded_queues()
        async with viewer(scene.app.web(access=of_role("admin", queues=OWN))) as person:
            asked = await person.get("/actions/redrive-jobs", params={"search": "state:dead"})
            assert "queue:mail,reports" in asked.text
            answer = await person.post(
                "/api/v1/actions/redrive-jobs", json={"search": "state:dead", "reason": "fixed"}
            )
            assert answer.json()["matched"] == 2
            assert "queue:mail,reports" in answer.json()["conditions"]

    asyncio.run(main())


def test_a_bulk_operation_of_a_limited_person_cancels_no_flow_with_jobs_of_others() -> None:
    async def main() -> None:
        app = queue_app()
        flow = app.flow("both", queue="mail")
        first = flow.add(app.producer("send_email").draft({"to": "b@example.org"}))
        flow.add(app.producer(f"{MARK}_kind").draft({"text": MARK}), after=[first])
        flowing = await flow.aenqueue()
        async with viewer(app.web(access=of_role("admin", queues=OWN))) as person:
            answer = await person.post(
                "/api/v1/actions/cancel-jobs",
                json={"search": "state:scheduled", "reason": "no longer needed"},
            )
            assert answer.status_code == 200, answer.text
        (operation,) = await app.control.abulks()
        page = await app.store.find(operation.which, limit=10)
        assert flowing.id not in {job.id for job in page.jobs}
        assert {job.queue for job in page.jobs} <= set(OWN)

    asyncio.run(main())


def test_an_unknown_kind_names_no_kinds_of_other_queues() -> None:
    async def main() -> None:
        async with viewer(queue_app().web(access=of_role("admin", queues=OWN))) as person:
            given = {"kind": f"{MARK[:-1]}_kind", "queue": "mail", "payload": "{}"}
            for path in ("/actions/enqueue", "/api/v1/actions/enqueue"):
                body = {"json": {**given, "payload": {}}} if "api" in path else {"data": given}
                answer = await person.post(path, **body)
                assert f"{MARK}_kind" not in answer.text

    asyncio.run(main())


def test_a_lever_that_spans_queues_is_refused_with_the_reason_and_has_no_button() -> None:
    async def main() -> None:
        scene = await seeded_queues()
        async with viewer(scene.app.web(access=of_role("admin", queues=OWN))) as person:
            answer = await person.post("/api/v1/actions/pause-kind", json={"name": "send_email"})
            assert answer.status_code == 403
            assert "the queues of your login, which are mail, reports" in answer.json()["detail"]
            kinds = (await person.get("/kinds")).text
            assert "/actions/pause-kind" not in kinds
            assert "/actions/enqueue" in kinds
            assert (await person.get("/store")).status_code == 403
            assert "/actions/pause-queue" in (await person.get("/queues")).text

    asyncio.run(main())


def test_a_read_only_page_keeps_the_queues_of_a_person() -> None:
    async def main() -> None:
        scene = await seeded_queues()
        page = scene.app.web(access=of_role("admin", queues=OWN), read_only=True)
        async with viewer(page) as person:
            answer = await person.get(f"/api/v1/jobs/{scene.other['dead']}")
            assert answer.status_code == 404

    asyncio.run(main())


def test_a_person_without_queues_sees_no_job() -> None:
    async def main() -> None:
        scene = await seeded_queues()
        async with viewer(scene.app.web(access=of_role("admin", queues=()))) as person:
            for path in ("/", "/jobs", "/errors", "/kinds", "/queues", "/workers", "/flows"):
                answer = await person.get(path)
                assert answer.status_code == 200, path
                assert "kind=send_email" not in answer.text
            short = str(scene.own["dead"]).replace("-", "")[:_PREFIX_DIGITS]
            assert (await person.get(f"/api/v1/jobs/{short}")).status_code == 404

    asyncio.run(main())


@pytest.mark.parametrize("queues", ["mail", ("",), tuple(f"q{n}" for n in range(51))])
def test_queues_that_are_none_are_refused(queues: Any) -> None:
    with pytest.raises(ConfigError, match="queues must"):
        Access(who="ada", queues=queues)
