"""Actions: the confirmation changes nothing, the form does, and the command says the same."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.app_on_store import serving, until
from tests.web.viewing import of_role, seeded, shop, viewer, with_breaker
from windlass import State, Windlass
from windlass.cli.root_command import cli
from windlass.web.actions.registry import ACTIONS

_ASKING = ("cancel-jobs", "purge-jobs", "purge-job", "remove-schedule")
"""Actions whose command asks at a terminal, unless it is given --yes."""


async def _state(app: Windlass, job_id: Any) -> State | None:
    job = await app.store.get(job_id)
    return None if job is None else job.state


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("retry-job", "scheduled", State.PENDING),
        ("cancel-job", "pending", State.CANCELLED),
        ("redrive-job", "dead", State.PENDING),
        ("purge-job", "completed", None),
    ],
)
def test_an_action_on_a_job_is_confirmed_first(
    action: str, before: str, after: State | None
) -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web(access=of_role("admin"))) as person:
            asked = await person.get(f"/actions/{action}?id={ids[before]}")
            assert "1 job" in asked.text
            assert str(ids[before]) in _command(asked.text)
            assert await _state(app, ids[before]) is State(before)
            data = {"id": str(ids[before]), "reason": "the disk was full"}
            acted = await person.post(f"/actions/{action}", data=data)
            assert acted.status_code == 303
            assert await _state(app, ids[before]) is after
            seen = await person.get(acted.headers["location"])
            assert seen.status_code == 200
            assert 'role="status"' in seen.text
            again = await person.post(f"/actions/{action}", data=data)
            assert again.status_code in (404, 409), "what is done cannot be done twice"

    asyncio.run(main())


def test_the_reason_and_the_person_are_kept_with_the_job() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web(access=of_role("operator"))) as person:
            data = {"id": str(ids["pending"]), "reason": "wrong customer"}
            await person.post("/actions/cancel-job", data=data)
        job = await app.store.get(ids["pending"])
        assert job is not None
        assert job.reason == "wrong customer"
        (entry, *_) = (await app.control.aaudit(job=job.id)).entries
        assert (entry.by, entry.via, entry.action) == ("ada", "web", "cancel")
        assert entry.reason == "wrong customer"

    asyncio.run(main())


def test_a_payload_is_checked_by_the_handler_s_types_before_anything_changes() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        own = {"id": str(ids["dead"])}
        async with viewer(app.web()) as person:
            asked = (await person.get("/actions/edit-job", params=own)).text
            assert "number" in html.unescape(asked)
            for wrong in ('{"number": "x"}', "{", "NaN", ""):
                answer = await person.post("/actions/edit-job", data={**own, "payload": wrong})
                assert answer.status_code == 422, wrong
                assert wrong in html.unescape(answer.text), "what was typed stays"
                assert await _state(app, ids["dead"]) is State.DEAD
            right = {**own, "payload": '{"number": 8}'}
            assert (await person.post("/actions/edit-job", data=right)).status_code == 303
        job = await app.store.get(ids["dead"])
        assert job is not None
        assert (job.state, json.loads(job.payload)) == (State.PENDING, {"number": 8})

    asyncio.run(main())


@pytest.mark.parametrize("state", ["completed", "pending", "scheduled", "cancelled"])
def test_only_the_payload_of_a_dead_job_can_be_edited(state: str) -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        job = await app.store.get(ids[state])
        assert job is not None
        async with viewer(app.web()) as person:
            answer = await person.get(f"/actions/edit-job?id={job.id}")
            assert answer.status_code == 409
            assert "only dead jobs can be edited" in answer.text
            assert "<textarea" not in answer.text
            for name in json.loads(job.payload):
                assert f'"{name}"' not in html.unescape(answer.text)

    asyncio.run(main())


def test_a_job_is_enqueued_if_its_payload_fits() -> None:
    async def main() -> None:
        app = shop()
        async with viewer(app.web()) as person:
            data = {"kind": "send_email", "payload": '{"to": 5}', "queue": "bulk"}
            assert (await person.post("/actions/enqueue", data=data)).status_code == 422
            data["payload"] = '{"to": "a@example.org"}'
            answer = await person.post("/actions/enqueue", data=data)
            assert answer.status_code == 303
        (job,) = (await app.jobs.afind()).jobs
        assert (job.kind, job.queue) == ("send_email", "bulk")
        assert str(job.id) in answer.headers["location"]

    asyncio.run(main())


def test_an_enqueue_is_in_the_audit_log_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        app = shop()

        @app.job(unique="name")
        async def lone(name: str) -> None: ...

        async with viewer(app.web(access=of_role("admin"))) as person:
            assert 'name="reason"' in (await person.get("/actions/enqueue?kind=send_email")).text
            data = {
                "kind": "send_email",
                "payload": '{"to": "zebra@example.org"}',
                "reason": "asked for by mail",
            }
            await person.post("/actions/enqueue", data=data)
            (job,) = (await app.jobs.afind()).jobs
            (entry,) = (await app.control.aaudit(job=job.id)).entries
            assert (entry.by, entry.via, entry.action) == ("ada", "web", "enqueue")
            assert (entry.subject, entry.reason) == (f"job:{job.id}", "asked for by mail")
            assert entry.detail == "kind=send_email queue=mail"
            own = '{"name": "x"}'
            for _ in range(2):
                await person.post("/actions/enqueue", data={"kind": "lone", "payload": own})
            entries = (await app.control.aaudit(action="enqueue")).entries
            assert [each.detail for each in entries][:-1] == ["kind=lone queue=default"]

    with caplog.at_level("INFO", "windlass.audit"):
        asyncio.run(main())
    assert "asked for by mail" in caplog.text
    assert "zebra" not in caplog.text


@pytest.mark.parametrize("verb", ["cancel", "redrive", "purge"])
def test_a_bulk_action_asks_for_a_reason_and_records_it(verb: str) -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        search = {"cancel": "state:pending", "redrive": "kind:fail", "purge": "kind:fail"}[verb]
        async with viewer(app.web(access=of_role("admin"))) as person:
            asked = await person.get(f"/actions/{verb}-jobs", params={"search": search})
            assert re.search(r'name="reason"[^>]* required', asked.text)
            data = {"search": search, "reason": "wrong import"}
            answer = await person.post(f"/actions/{verb}-jobs", data=data)
            assert answer.status_code == 303
        (entry, *_) = (await app.control.aaudit(action=verb)).entries
        assert (entry.by, entry.via, entry.reason) == ("ada", "web", "wrong import")

    asyncio.run(main())


def test_a_group_of_dead_jobs_is_counted_and_redriven() -> None:
    async def main() -> None:
        app = shop()
        drafts = [app.producer("fail").draft({"number": n}) for n in range(12)]
        await app.aenqueue_many(drafts)
        await app.arun_worker(burst=True)
        async with viewer(app.web(access=of_role("operator"))) as person:
            errors = (await person.get("/errors")).text
            link = re.search(r'href="(/actions/redrive-jobs[^"]+)"', errors)
            assert link is not None
            asked = (await person.get(html.unescape(link[1]))).text
            assert "12 jobs" in asked
            assert "windlass dead redrive" in _command(asked)
            search = re.search(r'name="search" value="([^"]+)"', asked)
            assert search is not None
            data = {"search": html.unescape(search[1]), "reason": "fixed"}
            answer = await person.post("/actions/redrive-jobs", data=data)
            assert answer.status_code == 303
        await app.control.apause(kind="fail")
        async with serving(app):
            await until(lambda: _are_pending(app, 12))

    asyncio.run(main())


async def _are_pending(app: Windlass, number: int) -> bool:
    return await app.jobs.acount(states=["pending"], kind="fail") == number


def test_a_bulk_action_needs_a_search_that_it_can_act_on() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web()) as person:
            for search in ("", "state:completed", "colour:red"):
                data = {"search": search, "reason": "x"}
                answer = await person.post("/actions/cancel-jobs", data=data)
                assert answer.status_code == 422, search
        assert await _state(app, ids["pending"]) is State.PENDING

    asyncio.run(main())


def test_levers_move_and_move_back() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        async with viewer(app.web()) as person:

            async def act(action: str, **data: str) -> None:
                answer = await person.post(f"/actions/{action}", data=data)
                assert answer.status_code == 303, (action, answer.text)

            for what in ("queue", "kind", "key"):
                await act(f"pause-{what}", name="mail")
                assert ("queue" if what == "queue" else what, "mail") in await app.control.apaused()
                await act(f"resume-{what}", name="mail")
            assert not await app.control.apaused()
            await act("set-limit", name="gpu", concurrency="7")
            assert (await app.control.alimits())[0].concurrency == 7
            await act("reset-limit", name="gpu")
            assert (await app.control.alimits())[0].concurrency == 2
            await act("open-breaker", name="stripe")
            (breaker,) = await app.control.abreakers()
            assert (breaker.forced, breaker.history[-1].by) == ("open", "local")
            audit = (await person.get("/audit")).text
            assert "breaker:stripe" in audit
            assert "local" in audit
            await act("release-breaker", name="stripe")
            await act("pause-schedule", name="nightly")
            assert (await app.schedules.aget("nightly")).paused
            await act("resume-schedule", name="nightly")
            before = await app.jobs.acount(kind="send_email")
            await act("run-schedule", name="nightly")
            assert await app.jobs.acount(kind="send_email") == before + 1
            await act("remove-schedule", name="nightly")
            assert "nightly" not in {each.name for each in await app.schedules.alist()}

    asyncio.run(main())


def test_a_schedule_that_is_not_there_cannot_be_removed() -> None:
    async def main() -> None:
        async with viewer(shop().web()) as person:
            answer = await person.post("/api/v1/actions/remove-schedule", json={"name": "nix"})
            assert answer.status_code == 404
            assert "there is no schedule 'nix'" in answer.text

    asyncio.run(main())


@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
def test_a_limit_that_is_none_is_refused_with_its_reason(value: str) -> None:
    async def main() -> None:
        app = shop()
        async with viewer(app.web()) as person:
            data = {"name": "gpu", "concurrency": value}
            answer = await person.post("/actions/set-limit", data=data)
            assert answer.status_code == 422
        assert (await app.control.alimits())[0].concurrency == 2

    asyncio.run(main())


def test_the_command_of_every_action_is_one_that_the_command_line_has() -> None:
    async def commands() -> dict[str, str]:
        app = shop()
        ids = await seeded(app)
        await with_breaker(app)
        given: dict[str, dict[str, str]] = {
            "retry-job": {"id": str(ids["scheduled"])},
            "cancel-job": {"id": str(ids["pending"])},
            "redrive-job": {"id": str(ids["dead"])},
            "edit-job": {"id": str(ids["dead"])},
            "purge-job": {"id": str(ids["completed"])},
            "enqueue": {"kind": "send_email"},
        }
        operation = {"id": str((await app.control.astart_bulk("cancel", kind="charge")).id)}
        given |= {f"{verb}-bulk": operation for verb in ("pause", "resume", "stop")}
        found = {}
        async with viewer(app.web()) as person:
            for name in ACTIONS:
                subject = name.rpartition("-")[2]
                names = {"breaker": "stripe", "schedule": "nightly", "limit": "gpu"}
                other = {"name": names.get(subject, "it's")}
                if subject == "jobs":
                    states = {"redrive-jobs": "dead", "purge-jobs": "dead"}
                    other = {"search": f"kind:fail state:{states.get(name, 'pending')} since:2h"}
                answer = await person.get(f"/actions/{name}", params=given.get(name, other))
                assert answer.status_code == 200, (name, answer.text)
                found[name] = _command(answer.text)
        return found

    for name, command in asyncio.run(commands()).items():
        program, *words = shlex.split(command)
        assert program == "windlass"
        # The store is one that nobody else sees, which is found out after the words were read.
        confirmed = ["--yes"] if name in _ASKING else []
        result = CliRunner().invoke(cli, [*words, *confirmed, "--url", "memory://"])
        assert result.exit_code == 1, (name, command, result.output)
        assert "memory://" in result.output, (name, command, result.output)


def _command(text: str) -> str:
    found = re.search(r'<div class="command"><code[^>]*>(.*?)</code>', text, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])
