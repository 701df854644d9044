"""Bulk operations on the page: planned by one page of jobs, carried on by workers, with levers."""

from __future__ import annotations

import asyncio
import html
import json
import re
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import serving, until
from tests.web.viewing import of_role, shop, viewer
from windlass import Windlass
from windlass.app.control import bulk_operations
from windlass.core.jobs.bulk import BulkState, bulk_facts
from windlass.store.memory.store import MemoryStore
from windlass.web.access.visible import HIDDEN

_JOBS = 12


async def _filled(app: Windlass) -> None:
    drafts = [app.producer("charge").draft({"cents": n}) for n in range(_JOBS)]
    await app.aenqueue_many(drafts)


async def _counts(app: Windlass) -> tuple[int, int]:
    pending = await app.jobs.acount(states=["pending"])
    return pending, await app.jobs.acount(states=["cancelled"])


def test_an_action_on_many_jobs_reads_one_page_and_moves_none_in_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[dict[str, Any]] = []
    find = MemoryStore.find

    async def spied(self: MemoryStore, *args: Any, **options: Any) -> Any:
        calls.append(options)
        return await find(self, *args, **options)

    async def main() -> None:
        app = shop()
        await _filled(app)
        monkeypatch.setattr(bulk_operations, "COUNTED", 5)
        async with viewer(app.web(access=of_role("operator"))) as person:
            monkeypatch.setattr(MemoryStore, "find", spied)
            asked = await person.get("/actions/cancel-jobs?search=kind:charge")
            assert "at least <strong>5 jobs</strong>" in asked.text
            assert "--background" in asked.text
            assert [(each["limit"], each["budget"] is None) for each in calls] == [(5, False)]
            data = {"search": "kind:charge", "rate": "100/s", "reason": "wrong price"}
            answer = await person.post("/actions/cancel-jobs", data=data)
            assert len(calls) == 2
            monkeypatch.undo()
        (operation,) = await app.control.abulks()
        assert answer.status_code == 303
        assert answer.headers["location"].startswith(f"/bulk/{operation.id}?")
        assert (operation.by, operation.via, operation.rate) == ("ada", "web", "100/s")
        assert (operation.reason, operation.is_capped) == ("wrong price", True)
        assert await _counts(app) == (_JOBS, 0)

    asyncio.run(main())


def test_an_action_on_jobs_that_a_search_has_not_found_yet_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def none_yet(*_: Any) -> tuple[int, bool]:
        return 0, True

    async def main() -> None:
        async with viewer(shop().web()) as person:
            asked = await person.get("/actions/cancel-jobs?search=kind:charge")
            assert re.search(r'type="submit" disabled', asked.text)
            monkeypatch.setattr("windlass.web.actions.bulk_actions.count_some", none_yet)
            asked = await person.get("/actions/cancel-jobs?search=kind:charge")
            assert not re.search(r'type="submit" disabled', asked.text)

    asyncio.run(main())


def test_an_operation_has_a_page_that_says_how_far_it_came() -> None:
    async def main() -> None:
        app = shop()
        await _filled(app)
        async with viewer(app.web(access=of_role("operator"))) as person:
            data = {"search": "kind:charge", "reason": "wrong <price>"}
            acted = await person.post("/actions/cancel-jobs", data=data)
            address = acted.headers["location"]
            page = html.unescape((await person.get(address)).text)
            for words in ("0 of 12 jobs", "wrong <price>", "kind=charge", "ada", "waits for one"):
                assert words in page, words
            (operation,) = await app.control.abulks()
            assert f"windlass bulk show {operation.id}" in page
            for path in ("/audit", "/bulk"):
                assert f'href="/bulk/{operation.id}"' in (await person.get(path)).text
            assert 'href="/bulk"' in (await person.get("/audit")).text
            short = await person.get(f"/bulk/{str(operation.id)[:13]}")
            assert short.headers["location"] == f"/bulk/{operation.id}"
            await app.control.apause(kind="charge")
            async with serving(app):
                await until(lambda: _is_completed(app))
                # The page may be a second old, as all of them.
                await until(lambda: _shows(person, f"/bulk/{operation.id}", "12 of 12 jobs"))
            page = (await person.get(f"/bulk/{operation.id}")).text
            assert "waits for one" not in page
            assert "/actions/" not in page, "an operation that has ended has no levers"
        assert await _counts(app) == (0, _JOBS)

    asyncio.run(main())


async def _is_completed(app: Windlass) -> bool:
    (operation,) = await app.control.abulks()
    return operation.state is BulkState.COMPLETED


async def _shows(person: Any, path: str, words: str) -> bool:
    return words in (await person.get(path)).text


def test_an_operation_is_paused_resumed_and_stopped() -> None:
    async def main() -> None:
        app = shop()
        await _filled(app)
        operation = await app.control.astart_bulk("cancel", search="kind:charge")
        own, path = {"id": str(operation.id)}, f"/bulk/{operation.id}"
        async with viewer(app.web(access=of_role("viewer"))) as person:
            assert "/actions/" not in (await person.get(path)).text
            answer = await person.post("/actions/stop-bulk", data=own)
            assert answer.status_code == 403
        async with viewer(app.web(access=of_role("operator"))) as person:
            for verb, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
                link = html.escape(f"/actions/{verb}-bulk?id={operation.id}")
                assert link in (await person.get(path)).text
                assert (await person.get(link)).status_code == 200
                data = {**own, "reason": f"{verb} it"}
                acted = await person.post(f"/actions/{verb}-bulk", data=data)
                assert acted.status_code == 303
                assert f"is {state}" in (await person.get(acted.headers["location"])).text
                assert (await app.control.abulk(operation.id)).state == state
                (entry,) = (await app.control.aaudit(action=verb)).entries
                assert (entry.by, entry.via, entry.reason) == ("ada", "web", f"{verb} it")

    asyncio.run(main())


def test_the_api_has_the_documents_of_the_command_line() -> None:
    async def main() -> None:
        app = shop()
        await _filled(app)
        async with viewer(app.web()) as script:
            body = {"search": "kind:charge", "rate": "10/s", "reason": "wrong price"}
            started = (await script.post("/api/v1/actions/cancel-jobs", json=body)).json()
            (operation,) = await app.control.abulks()
            document = json.loads(json.dumps(bulk_facts(operation)))
            assert started == {"message": started["message"], **document}
            assert (await script.get(f"/api/v1/bulk/{operation.id}")).json() == document
            assert (await script.get("/api/v1/bulk")).json() == {"bulks": [document]}

    asyncio.run(main())


def test_an_operation_that_is_not_there_has_a_page_with_its_remedy() -> None:
    async def main() -> None:
        async with viewer(shop().web()) as person:
            for path in ("/bulk/", "/api/v1/bulk/", "/actions/stop-bulk?id="):
                answer = await person.get(f"{path}{uuid4()}")
                assert answer.status_code == 404
                assert "30 days" in answer.text
            wrong = {"search": "kind:charge", "rate": "fast", "reason": "x"}
            answer = await person.post("/actions/cancel-jobs", data=wrong)
            assert answer.status_code == 422

    asyncio.run(main())


def test_the_conditions_of_an_operation_hide_payloads_and_secrets() -> None:
    async def main() -> None:
        app = shop()
        operation = await app.control.astart_bulk(
            "cancel", search="payload.to:zebra kind:fail", reason="password=hunter2"
        )
        paths = (f"/bulk/{operation.id}", "/bulk", f"/api/v1/bulk/{operation.id}", "/api/v1/bulk")
        for payloads in (True, False):
            async with viewer(app.web(access=of_role("operator", payloads=payloads))) as person:
                for path in paths:
                    text = (await person.get(path)).text
                    assert "hunter2" not in text
                    assert ("zebra" in text) is payloads
                    assert (f"payload.to:{HIDDEN}" in text) is not payloads
                stopped = await person.post(
                    "/api/v1/actions/stop-bulk", json={"id": str(operation.id)}
                )
                assert ("zebra" in stopped.text) is payloads

    asyncio.run(main())
