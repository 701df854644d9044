"""Levers of the page: what holds jobs back, who holds it, and how many jobs a change concerns."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import serving, until
from tests.web.viewing import of_role, seeded, shop, viewer, with_breaker
from windlass import Windlass


@pytest.mark.parametrize(
    ("action", "name", "says"),
    [
        ("pause-queue", "default", "1 job waits for it now"),
        ("pause-queue", "mail", "0 jobs wait for it now"),
        ("pause-kind", "charge", "1 job waits for it now"),
        ("pause-key", "acme", "0 jobs wait for it now"),
        ("set-limit", "gpu", "1 job waits for it now"),
        ("reset-limit", "gpu", "1 job waits for it now"),
        ("open-breaker", "stripe", "1 job waits for it now"),
        ("set-limit", "unknown", "Which jobs wait for it is not known here"),
    ],
)
def test_a_lever_says_how_many_jobs_wait_for_it(action: str, name: str, says: str) -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        await with_breaker(app)
        async with viewer(app.web(access=of_role("admin"))) as person:
            asked = await person.get(f"/actions/{action}?name={name}")
            assert says in asked.text

    asyncio.run(main())


def test_a_limit_says_who_holds_it_and_whose_jobs_it_holds_back() -> None:
    async def main() -> None:
        app, gate = Windlass("memory://"), asyncio.Event()
        app.limit("gpu", concurrency=1)

        @app.job(limit="gpu")
        async def render() -> None:
            await gate.wait()

        await app.aenqueue_many([render.draft(), render.draft()])
        async with serving(app, concurrency=5):
            (worker,) = [each.info.id for each in await app.store.workers()]

            async def is_held_back() -> bool:
                (gpu,) = [each for each in await app.control.alimits() if each.name == "gpu"]
                return gpu.holders == {worker: 1} and gpu.exhausted and gpu.kinds == ("render",)

            await until(is_held_back)
            async with viewer(app.web(access=of_role("viewer"))) as person:
                page = (await person.get("/limits")).text
                assert f"/workers/{worker}" in page.replace("%3A", ":")
                assert "Holds back now" in page
                (facts,) = (await person.get("/api/v1/limits")).json()["limits"]
                assert (facts["holders"], facts["kinds"]) == ({worker: 1}, ["render"])
            gate.set()

    asyncio.run(main())


def test_a_tag_leads_to_the_jobs_that_have_it() -> None:
    async def main() -> None:
        app = shop()
        handle = await app.producer("send_email").using(tags=["vip"]).aenqueue({"to": "a"})
        async with viewer(app.web()) as person:
            assert "/jobs?tag=vip" in (await person.get(f"/jobs/{handle.id}")).text
            assert str(handle.id) in (await person.get("/jobs?tag=vip")).text

    asyncio.run(main())


def test_the_audit_log_has_the_same_document_as_the_command() -> None:
    async def main() -> None:
        app = shop()
        await app.control.apause("mail")
        async with viewer(app.web()) as person:
            document = (await person.get("/api/v1/audit")).json()
            assert set(document) == {"entries", "after", "searched_to"}

    asyncio.run(main())
