"""The timeline of a job: what happened to it, with the actions of operators, in order of time."""

from __future__ import annotations

import asyncio

from tests.web.viewing import seeded, shop, viewer
from windlass.web.rendering.story import story_of


def test_actions_of_operators_stand_where_they_belong_in_time() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        operator = app.control.acting_as("ada", via="web", reason="cannot wait")
        await operator.aretry(ids["scheduled"])
        await operator.acancel(ids["scheduled"])
        job = await app.store.get(ids["scheduled"])
        assert job is not None
        assert job.finished_at is not None
        acted = (await app.control.aaudit(job=job.id)).entries
        titles = [each.title for each in story_of(job, job.finished_at, acted=acted)]
        assert titles == ["Enqueued", "Operator: retry", "Operator: cancel", "Cancelled"]
        async with viewer(app.web()) as person:
            page = (await person.get(f"/jobs/{job.id}")).text
            assert "by ada (web): cannot wait" in page

    asyncio.run(main())


def test_a_job_that_waits_says_in_its_timeline_what_for() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        await app.control.apause("default")
        async with viewer(app.web()) as person:
            story = (await person.get(f"/jobs/{ids['pending']}")).text.split('id="story"')[1]
            assert "queue default is paused" in story.split("</section>")[0]

    asyncio.run(main())
