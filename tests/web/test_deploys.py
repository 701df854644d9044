"""The page and the API show the errors that are new since a deploy, and the chart where it was."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from tests.web.viewing import seeded, shop, viewer
from windlass import PermanentError
from windlass.web.rendering import charts


def test_errors_are_narrowed_to_those_that_are_new_since_a_deploy() -> None:
    async def main() -> None:
        app = shop()

        @app.job
        async def crash() -> None:
            raise PermanentError("a new fault")

        await seeded(app)
        await app.control.amark_deploy("v2/<b>")
        await crash.aenqueue()
        await app.arun_worker(burst=True)
        async with viewer(app.web()) as person:
            every = (await person.get("/errors")).text
            assert "number 7 is wrong" in every
            assert "a new fault" in every
            assert "/errors?deploy=v2%2F%3Cb%3E" in every
            new = (await person.get("/errors", params={"deploy": "v2/<b>"})).text
            assert "number 7 is wrong" not in new
            assert "a new fault" in new
            path = "/api/v1/errors"
            groups = (await person.get(path, params={"deploy": "v2/<b>"})).json()["groups"]
            assert [each["kind"] for each in groups] == ["crash"]
            assert len((await person.get(path)).json()["groups"]) == 2
            deploys = (await person.get("/api/v1/deploys")).json()["deploys"]
            assert [each["name"] for each in deploys] == ["v2/<b>"]

    asyncio.run(main())


def test_an_unknown_deploy_is_a_problem_with_a_remedy() -> None:
    async def main() -> None:
        app = shop()
        await app.control.amark_deploy("v1")
        async with viewer(app.web()) as person:
            answer = await person.get("/errors?deploy=v2")
            assert answer.status_code == 422
            assert "the latest are: v1" in answer.text
            refused = await person.get("/api/v1/errors?deploy=v2")
            assert refused.status_code == 422
            assert "windlass deploys mark" in refused.json()["remedy"]

    asyncio.run(main())


def test_a_chart_has_a_line_at_each_deploy_within_its_time() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    moments = [
        (now - timedelta(seconds=75), "v2<b>"),
        (now - timedelta(hours=1), "v1"),
        (now + timedelta(seconds=5), "ahead"),
    ]
    marks = charts.marks_within(10, now, moments)
    assert marks == [(75.0, "v2<b>")]
    drawn = charts.throughput([1.0] * 10, [1.0] * 10, marks)
    assert '<line class="mark" x1="60.0"' in drawn
    assert "<title>v2&lt;b&gt;</title>" in drawn
    assert 'class="mark"' not in charts.throughput([1.0] * 10, [1.0] * 10)
