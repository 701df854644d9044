"""The pages of one kind, one queue and one worker: what is known about it, whatever its name is."""

from __future__ import annotations

import asyncio
import html
import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.support.app_on_store import in_state, serving
from tests.web.viewing import of_role, seeded, shop, viewer, with_breaker
from windlass import PermanentError, State

HOSTILE = [
    "a/b",
    "/a//b/",
    "..",
    ".",
    "../kinds",
    "a b",
    "a%2Fb",
    "?q=1#x",
    "<b>x</b>",
    "Größe/日本",
    "a\"b'c",
    "back\\slash",
    "&amp;",
    "{name}",
    "https://evil.example",
]


def linked(text: str, prefix: str) -> list[str]:
    """Return the addresses in a page that begin with a prefix."""
    found = [html.unescape(each) for each in re.findall(r'href="([^"]+)"', text)]
    return [each for each in found if each.startswith(prefix)]


def test_a_kind_has_its_figures_errors_limits_breakers_workers_and_schedules() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        await with_breaker(app)
        async with serving(app), viewer(app.web()) as person:
            fails = (await person.get("/kinds/fail")).text
            assert "number 7 is wrong" in fails
            assert 'id="hour"' in fails
            assert "/actions/pause-kind?name=fail" in fails
            assert "/actions/enqueue?kind=fail" in fails
            assert linked(fails, "/workers/")
            mails = (await person.get("/kinds/send_email")).text
            assert "nightly" in mails
            assert linked(mails, "/queues/mail")
            assert "windlass stats --kind send_email" in mails
            charge = (await person.get("/kinds/charge")).text
            assert "gpu" in charge
            assert "/actions/probe-breaker?name=stripe" in charge

    asyncio.run(main())


def test_a_queue_has_its_depths_kinds_errors_workers_and_limit() -> None:
    async def main() -> None:
        app = shop()
        app.limit(queue="mail", concurrency=3)
        await seeded(app)
        await app.control.apause("mail")
        async with serving(app), viewer(app.web()) as person:
            mail = (await person.get("/queues/mail")).text
            assert "/actions/resume-queue?name=mail" in mail
            assert linked(mail, "/kinds/send_email")
            assert linked(mail, "/workers/")
            assert "queue:mail" in mail
            assert "windlass jobs list --queue mail" in mail
            assert "number 7 is wrong" in (await person.get("/queues/default")).text

    asyncio.run(main())


def test_a_worker_has_its_facts_running_jobs_and_last_jobs() -> None:
    async def main() -> None:
        app = shop()
        gate = asyncio.Event()

        @app.job
        async def wait() -> None:
            await gate.wait()

        done = (await seeded(app))["completed"]
        (before,) = [each.info.id for each in await app.store.workers()]
        running = await wait.aenqueue()
        async with serving(app) as worker, viewer(app.web()) as person:
            await in_state(running, State.RUNNING)
            text = (await person.get(f"/workers/{worker.id}")).text
            assert str(running.id) in text
            assert linked(text, "/kinds/send_email")
            assert "windlass worker --drain" in text
            gone = (await person.get(f"/workers/{before}")).text
            assert "badge-gone" in gone
            assert str(done) in gone
            assert "--drain" not in gone
            gate.set()

    asyncio.run(main())


@pytest.mark.parametrize("prefix", ["", "/jobs/of shop"])
@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_leads_from_the_list_to_its_page(name: str, prefix: str) -> None:
    async def main() -> None:
        app = shop()

        async def handler() -> None:
            raise PermanentError("no")

        app.job(name=name, queue=name)(handler)
        await app.aenqueue_many([app.producer(name).draft({})])
        await app.arun_worker(burst=True)
        page = Starlette(routes=[Mount(prefix or "/", app.web())])
        async with viewer(page) as person:
            for list_path in ("/kinds", "/queues"):
                listing = (await person.get(prefix + list_path)).text
                root = f"{prefix}{list_path}".replace(" ", "%20")
                pages = [await person.get(each) for each in linked(listing, f"{root}/")]
                assert {each.status_code for each in pages} == {200}
                titles = [re.findall(r"<h1>(.*?) <span", each.text)[0] for each in pages]
                assert name in map(html.unescape, titles), list_path

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/kinds/nothing", "/queues/nothing", "/workers/nothing:1:x"])
def test_an_unknown_name_is_answered_with_a_remedy(path: str) -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        async with viewer(app.web()) as person:
            answer = await person.get(path)
            assert answer.status_code == 404
            assert "nothing" in answer.text
            assert 'class="remedy"' in answer.text
            endless = await person.get(f"{path}{'x' * 5000}")
            assert endless.status_code == 404
            assert len(endless.text) < 10_000
            assert (await person.get(path.rsplit("/", 1)[0] + "/")).status_code == 404

    asyncio.run(main())


def test_a_viewer_sees_the_pages_without_buttons() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        await with_breaker(app)
        async with viewer(app.web(access=of_role("viewer"))) as person:
            for path in ("/kinds/charge", "/queues/mail"):
                answer = await person.get(path)
                assert answer.status_code == 200
                assert linked(answer.text, "/actions/") == []

    asyncio.run(main())
