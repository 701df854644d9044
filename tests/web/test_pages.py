"""Every page, on jobs of every state, under any prefix, and with jobs that mean harm."""

from __future__ import annotations

import asyncio
import json
import re
from uuid import UUID

import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.web.viewing import of_role, seeded, shop, viewer, with_breaker
from windlass import State, Windlass
from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Progress
from windlass.web.access.security_headers import HEADERS
from windlass.web.access.visible import HIDDEN

PAGES = ["/", "/jobs", "/errors", "/kinds", "/queues", "/workers", "/flows", "/schedules"]
PAGES += ["/limits", "/store", "/audit", "/bulk"]
_INLINE = re.compile(
    r"<script(?![^>]*src=)|<style|<[^<>]*\s(?:style|on[a-z]+)=|=\"javascript:", re.IGNORECASE
)
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\u2066\x00\x9b"


def test_every_page_is_there_with_its_headers_and_nothing_inline() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        await with_breaker(app)
        await app.control.apause(kind="charge")
        own = [*(f"/jobs/{each}" for each in ids.values()), f"/flows/{ids['flow']}"]
        confirmations = ["/actions/pause-queue?name=mail", f"/actions/edit-job?id={ids['dead']}"]
        async with viewer(app.web(name="staging")) as person:
            for path in (*PAGES, *own, *confirmations):
                answer = await person.get(path)
                assert answer.status_code == 200, path
                assert "staging" in answer.text
                for name, value in HEADERS.items():
                    assert answer.headers[name] == value, (path, name)
                assert not _INLINE.search(answer.text), path

    asyncio.run(main())


def test_an_app_without_anything_has_every_page() -> None:
    async def main() -> None:
        async with viewer(Windlass("memory://").web()) as person:
            for path in PAGES:
                assert (await person.get(path)).status_code == 200, path

    asyncio.run(main())


def test_the_page_works_under_any_prefix() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        outer = Starlette(routes=[Mount("/admin/jobs", app.web())])
        async with viewer(outer) as person:
            front = (await person.get("/admin/jobs/")).text
            links = set(re.findall(r'(?:href|src|action)="([^"#]*)"', front))
            assert links
            assert all(each.startswith("/admin/jobs/") for each in links), links
            for each in sorted(links):
                assert (await person.get(each.replace("&amp;", "&"))).status_code == 200, each
            data = {"id": str(ids["pending"])}
            answer = await person.post("/admin/jobs/actions/cancel-job", data=data)
            assert answer.headers["location"].startswith(f"/admin/jobs/jobs/{ids['pending']}")
            api = (await person.get("/admin/jobs/api/v1/openapi.json")).json()
            assert api["servers"] == [{"url": "/admin/jobs"}]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pending", ["no worker is alive", "Cancel", "windlass worker"]),
        ("scheduled", ["Run now", "windlass jobs retry", "Enqueued"]),
        ("dead", ["Redrive", "Edit payload", "number 7 is wrong", "Attempt 1", "Traceback"]),
        ("completed", ["Completed", "sent to a@example.org", "a@example.org"]),
        ("cancelled", ["Cancelled", "cancelled by an operator"]),
    ],
)
def test_a_job_has_its_story_its_reason_and_the_remedy(state: str, words: list[str]) -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web()) as person:
            text = (await person.get(f"/jobs/{ids[state]}")).text
            for word in words:
                assert word in text, word

    asyncio.run(main())


def test_a_pause_is_an_alarm_and_the_reason_of_its_jobs_with_the_same_remedy() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        await app.control.apause("default")
        async with viewer(app.web()) as person:
            for path in ("/", f"/jobs/{ids['pending']}"):
                text = (await person.get(path)).text
                assert "queue default is paused" in text
                assert 'href="/actions/resume-queue?name=default"' in text

    asyncio.run(main())


def test_a_search_selects_jobs_and_an_id_leads_to_its_job() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web()) as person:
            dead = (await person.get("/jobs", params={"q": "state:dead kind:fail"})).text
            assert str(ids["dead"]) in dead
            assert str(ids["pending"]) not in dead
            for text in (str(ids["dead"]), str(ids["dead"])[-8:]):
                answer = await person.get("/jobs", params={"q": text})
                assert answer.headers["location"] == f"/jobs/{ids['dead']}"
            wrong = await person.get("/jobs", params={"q": "colour:red"})
            assert wrong.status_code == 422
            assert "(at character 1 of the search)" in wrong.text
            unknown = await person.get("/jobs", params={"q": "00000000"})
            assert unknown.status_code == 422

    asyncio.run(main())


def test_pages_of_a_listing_continue_where_the_last_one_ended() -> None:
    async def main() -> None:
        app = shop()
        drafts = [app.producer("send_email").draft({"to": str(n)}) for n in range(120)]
        ids = {str(handle.id) for handle in await app.aenqueue_many(drafts)}
        seen: list[str] = []
        async with viewer(app.web()) as person:
            path: str | None = "/jobs"
            while path:
                text = (await person.get(path)).text
                seen += re.findall(r'id="job-([0-9a-f-]+)"', text)
                more = re.search(r'rel="next" href="([^"]+)"', text)
                path = more[1].replace("&amp;", "&") if more else None
        assert len(seen) == 120
        assert set(seen) == ids

    asyncio.run(main())


def test_an_unknown_address_has_a_page_with_its_remedy() -> None:
    async def main() -> None:
        async with viewer(shop().web()) as person:
            for path in ("/nothing", f"/jobs/{UUID(int=7)}", f"/flows/{UUID(int=7)}"):
                answer = await person.get(path)
                assert answer.status_code == 404, path
                assert "<h1>Not Found</h1>" in answer.text
            assert (await person.get("/jobs?after=x")).status_code == 422

    asyncio.run(main())


def test_payloads_are_hidden_from_who_may_not_see_them() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web(access=of_role("admin", payloads=False))) as person:
            for state, id_ in ids.items():
                page = (await person.get(f"/jobs/{id_}")).text
                assert "example.org" not in page, state
                document = await person.get(f"/api/v1/jobs/{id_}")
                assert "example.org" not in document.text
                assert document.json()["payload"] == HIDDEN
            assert (await person.get(f"/actions/edit-job?id={ids['dead']}")).status_code == 403

    asyncio.run(main())


def test_secrets_are_masked_on_the_page_and_in_the_api() -> None:
    async def main() -> None:
        app = shop()
        draft = app.producer("send_email").using(headers={"password": "hunter2"})
        (handle,) = await app.aenqueue_many([draft.draft({"to": "a"})])
        async with viewer(app.web()) as person:
            for path in (f"/jobs/{handle.id}", f"/api/v1/jobs/{handle.id}"):
                text = (await person.get(path)).text
                assert "password" in text
                assert "hunter2" not in text

    asyncio.run(main())


def _hostile(job: Job) -> Job:
    error = ErrorInfo(
        type=HOSTILE, message=HOSTILE + "x" * 1_000_000, traceback=HOSTILE, fingerprint=HOSTILE
    )
    attempt = Attempt(
        number=1,
        worker=HOSTILE,
        started_at=job.created_at,
        duration=job.due_at - job.created_at,
        outcome=HOSTILE,
        error=error,
    )
    step = json.dumps({"type": "done", "name": HOSTILE, "seconds": 1.0, "result": [HOSTILE]})
    return replace(
        job,
        state=State.DEAD,
        finished_at=job.created_at,
        payload=b'{"a": NaN, "b": "' + b"\xff\xfe" + b"y" * 1_000_000,
        result=b'"\\ud800 </script>"',
        error=error,
        reason=HOSTILE,
        worker=HOSTILE,
        headers={HOSTILE: HOSTILE},
        history=(attempt,) * 100,
        steps=(step, "not JSON", HOSTILE) * 3_334,
        progress=Progress(fraction=float("nan"), message=HOSTILE),
    )


def test_a_hostile_job_breaks_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        app = shop()
        (handle,) = await app.aenqueue_many([app.producer("send_email").draft({"to": "x"})])
        real = await app.store.get(handle.id)
        assert real is not None
        hostile = _hostile(real)

        async def get(_id: UUID) -> Job:
            return hostile

        monkeypatch.setattr(app.store, "get", get)
        async with viewer(app.web()) as person:
            answer = await person.get(f"/jobs/{handle.id}")
            assert answer.status_code == 200
            assert len(answer.content) < 2_000_000
            assert not _INLINE.search(answer.text)
            for character in "\u202e\u2066\x1b\x00\x9b":
                assert character not in answer.text
            document = await person.get(f"/api/v1/jobs/{handle.id}")
            assert document.status_code == 200
            found = json.loads(document.text, parse_constant=pytest.fail)
            assert found["state"] == "dead"
            assert found["progress"]["fraction"] is None

    asyncio.run(main())


def test_hostile_names_of_queues_and_searches_stay_text() -> None:
    async def main() -> None:
        app = shop()
        name = '"><script>alert(1)</script>'
        await app.control.apause(key=name)
        async with viewer(app.web()) as person:
            for path in ("/", "/queues", f"/jobs?q={name}", f"/errors?kind={name}&since={name}"):
                assert "<script>alert" not in (await person.get(path)).text, path
            answer = await person.get("/?done=Your+password+has+expired")
            assert "expired" not in answer.text

    asyncio.run(main())


def test_static_files_are_kept_for_ever_and_nothing_else_is_served() -> None:
    async def main() -> None:
        async with viewer(shop().web()) as person:
            front = (await person.get("/")).text
            files = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', front))
            assert len(files) >= 4
            for each in files:
                answer = await person.get(each)
                assert answer.status_code == 200, each
                assert "immutable" in answer.headers["cache-control"]
            for path in ("/static/x/..%2Fasgi.py", "/static/x/base.html", "/static/x/nothing.css"):
                assert (await person.get(path)).status_code == 404

    asyncio.run(main())


def test_a_page_is_small() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        async with viewer(app.web()) as person:
            front = await person.get("/")
            files = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', front.text))
            sizes = {each: len((await person.get(each)).content) for each in files}
            modules = ("stream.js", "fragments.js")
            script = next(each for each in files if each.endswith("page.js"))
            for each in modules:
                sizes[each] = len((await person.get(script.replace("page.js", each))).content)
            assert sum(size for each, size in sizes.items() if each.endswith(".js")) < 25_000
            assert sum(sizes.values()) + len(front.content) < 60_000

    asyncio.run(main())


def test_masked_and_hidden_payloads_cannot_be_searched_for() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        search = {"q": "payload.to:a@example.org"}
        async with viewer(app.web()) as person:
            assert (await person.get("/jobs", params=search)).status_code == 200
            for masked in ("payload.password:x", "header.token:x"):
                assert (await person.get("/jobs", params={"q": masked})).status_code == 403
        async with viewer(app.web(access=of_role("admin", payloads=False))) as person:
            assert (await person.get("/jobs", params=search)).status_code == 403
            query = {"search": search["q"]}
            assert (await person.get("/api/v1/jobs", params=query)).status_code == 403
            data = {"search": search["q"], "reason": "x"}
            assert (await person.post("/actions/purge-jobs", data=data)).status_code == 403

    asyncio.run(main())


@pytest.mark.parametrize(
    "search",
    [
        "kind:fail payload.order.id:zebra",
        "payload.order.id:zebra",
        "header.tenant:zebra,x* error:boom",
        '-payload.name:"Ada \'zebra\' \\"x\\"" kind:fail',
        f"payload.name:zebra payload.order.id:{'x' * 1_500}",
    ],
)
def test_the_audit_log_hides_searched_payloads_from_who_may_not_see_them(search: str) -> None:
    async def main() -> None:
        app = shop()
        await app.control.astart_bulk("cancel", search=search, rate="5/s", reason="test")
        for payloads in (True, False):
            async with viewer(app.web(access=of_role("viewer", payloads=payloads))) as person:
                (entry,) = (await person.get("/api/v1/audit")).json()["entries"]
                assert ("zebra" in entry["detail"]) is payloads
                page = (await person.get("/audit")).text
                if not payloads:
                    assert "zebra" not in page
                    assert HIDDEN in entry["detail"]
                if len(search) < 200:
                    assert entry["detail"].endswith(" rate=5/s")
                    assert ("zebra" in page) is payloads

    asyncio.run(main())


def test_the_audit_log_masks_values_of_masked_names() -> None:
    async def main() -> None:
        app = shop()
        await app.control.astart_bulk("cancel", search="payload.password:hunter2 kind:fail")
        async with viewer(app.web()) as person:
            for path in ("/audit", "/api/v1/audit"):
                text = (await person.get(path)).text
                assert "payload.password" in text
                assert "hunter2" not in text

    asyncio.run(main())


def test_the_reason_of_a_flow_is_masked_in_the_api() -> None:
    async def main() -> None:
        app = shop()
        flow = app.flow("nightly")
        flow.add(app.producer("charge").draft({"cents": 1}))
        handle = await flow.aenqueue()
        await app.control.acancel(handle.id, reason="password=hunter2 was wrong")
        async with viewer(app.web()) as script:
            reason = (await script.get(f"/api/v1/flows/{handle.id}")).json()["reason"]
        assert "was wrong" in reason
        assert "hunter2" not in reason

    asyncio.run(main())


def test_the_answer_to_an_action_is_masked() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web()) as script:
            data = {"id": str(ids["pending"]), "reason": "password=hunter2 was wrong"}
            answer = await script.post("/api/v1/actions/cancel-job", json=data)
        reason = answer.json()["job"]["reason"]
        assert "was wrong" in reason
        assert "hunter2" not in reason

    asyncio.run(main())


def test_pages_are_compressed_for_browsers_that_can_read_that() -> None:
    async def main() -> None:
        async with viewer(shop().web()) as person:
            packed = await person.get("/", headers={"accept-encoding": "gzip"})
            plain = await person.get("/", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert int(packed.headers["content-length"]) < len(plain.content) / 3

    asyncio.run(main())
