"""Pipelines: kinds one after the other over a shared context, from code and from a payload."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from windlass import (
    PIPELINE,
    Backoff,
    Cancel,
    ConfigError,
    PayloadInvalid,
    Pipeline,
    Retry,
    Snooze,
    Stage,
    State,
    SyncContext,
    Windlass,
)
from windlass.core.jobs.job import Job

pytestmark = pytest.mark.stores("postgres")

AT_ONCE = Retry(max_retries=3, backoff=Backoff(base=timedelta(0)))


def importing(app: Windlass) -> Counter[str]:
    """Register three kinds, of which one fails the first time; return how often each ran."""
    runs: Counter[str] = Counter()

    @app.job
    async def fetch(url: str) -> str:
        runs["fetch"] += 1
        return f"<p>{url}</p>"

    @app.job
    def parse(ctx: SyncContext, fetch: str, *, strict: bool = False) -> dict[str, Any]:
        runs["parse"] += 1
        if runs["parse"] == 1:
            raise ConnectionResetError
        return {"text": fetch.strip("</p>"), "strict": strict, "id": str(ctx.job_id)}

    @app.job
    async def save(parse: dict[str, Any], url: str) -> str:
        runs["save"] += 1
        return f"{parse['text']} from {url}, strict: {parse['strict']}"

    return runs


def told(job: Job) -> list[tuple[str, str]]:
    """Return what each entry of the job's log is, and of which step."""
    return [(entry["entry"], entry["name"]) for entry in map(json.loads, job.steps)]


def test_steps_run_in_order_over_a_shared_context(bed: Bed) -> None:
    app = bed.app()
    runs = importing(app)
    imports = app.pipeline("import", ["fetch", "parse", "save"], retry=AT_ONCE)

    async def main() -> None:
        async with serving(app):
            handle = await imports.aenqueue({"url": "example.org"})
            assert await handle.aresult("60s") == "example.org from example.org, strict: False"
            entries = told(await handle.ainfo())
            assert entries == [
                ("done", "fetch"),
                ("failed", "parse"),
                ("done", "parse"),
                ("done", "save"),
            ]

    asyncio.run(main())
    assert runs == {"fetch": 1, "parse": 2, "save": 1}


@on_embedded_stores
def test_every_run_of_a_step_is_recorded_with_its_output_and_duration(bed: Bed) -> None:
    app = bed.app()
    importing(app)
    imports = app.pipeline("import", ["fetch", "parse"], retry=AT_ONCE)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await imports.aenqueue({"url": "x"}), State.COMPLETED)
            done, failed, again = map(json.loads, job.steps)
            assert done["result"] == "<p>x</p>"
            assert "ConnectionResetError" in failed["error"]
            assert again["result"]["text"] == "x"
            assert all(entry.get("seconds", 0) >= 0 for entry in (done, failed, again))

    asyncio.run(main())


def test_a_pipeline_is_put_together_in_a_payload(bed: Bed) -> None:
    app = bed.app()
    importing(app)
    steps = (Stage("fetch"), Stage("parse", arguments={"strict": True}), Stage("save", name="keep"))

    async def main() -> None:
        async with serving(app):
            made = Pipeline(steps=steps, context={"url": "example.org"})
            handle = await app.producer(PIPELINE).using(max_retries=1).aenqueue(made)
            job = await in_state(handle, State.COMPLETED, State.SCHEDULED)
            if job.state is State.SCHEDULED:
                await app.control.aretry(handle.id)
            result = await handle.aresult("60s")
            assert result == "example.org from example.org, strict: True"
            assert told(await handle.ainfo())[-1] == ("done", "keep")

    asyncio.run(main())


@on_embedded_stores
def test_a_kind_that_nobody_registered_is_not_looked_for_elsewhere(bed: Bed) -> None:
    app = bed.app()
    runs = importing(app)

    async def main() -> None:
        async with serving(app):
            made = Pipeline(steps=(Stage("fetch"), Stage("os.system")), context={"url": "x"})
            job = await in_state(await app.producer(PIPELINE).aenqueue(made), State.DEAD)
            assert "no handler is registered for 'os.system'" in (job.reason or "")

    asyncio.run(main())
    assert not runs, "nothing of it was begun"


@on_embedded_stores
def test_arguments_that_do_not_fit_end_the_pipeline_and_are_named(bed: Bed) -> None:
    app = bed.app()
    importing(app)
    imports = app.pipeline("import", ["fetch"])

    async def main() -> None:
        async with serving(app):
            for context in ({}, {"url": 7}):
                job = await in_state(await imports.aenqueue(context), State.DEAD)
                assert "url" in (job.reason or "")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([], "at least one step"),
        (["a", "a"], "two steps are named 'a'"),
        ([Stage("a"), Stage("b", name="a")], "two steps are named 'a'"),
        ([7], "got 7"),
    ],
)
def test_invalid_pipelines_are_refused(steps: Any, why: str) -> None:
    app = Windlass("memory://")
    with pytest.raises(ConfigError, match=why):
        app.pipeline("import", steps)


def test_invalid_pipelines_are_refused_in_a_payload() -> None:
    app = Windlass("memory://")
    with pytest.raises(ValueError, match="at least one step"):
        Pipeline(steps=())
    with pytest.raises((PayloadInvalid, TypeError)):
        app.producer(PIPELINE).draft({"steps": [{"kind": ""}]})  # type: ignore[arg-type]


@on_embedded_stores
def test_a_step_that_cancels_ends_the_pipeline_as_cancelled(bed: Bed) -> None:
    app = bed.app()
    runs = importing(app)

    @app.job
    async def check(url: str) -> Cancel:
        return Cancel(f"{url} is not wanted")

    imports = app.pipeline("import", ["fetch", "check", "parse"])

    async def main() -> Job:
        async with serving(app):
            return await in_state(await imports.aenqueue({"url": "x"}), State.CANCELLED)

    job = asyncio.run(main())
    assert job.reason == "x is not wanted"
    assert told(job) == [("done", "fetch")]
    assert runs == {"fetch": 1}


@on_embedded_stores
def test_a_step_that_snoozes_has_the_pipeline_go_on_there_later(bed: Bed) -> None:
    app = bed.app()
    runs = importing(app)

    @app.job
    def check(fetch: str) -> Snooze | str:
        runs["check"] += 1
        return Snooze("1ms") if runs["check"] < 3 else f"{fetch}!"

    imports = app.pipeline("import", ["fetch", "check"])

    async def main() -> Job:
        async with serving(app):
            return await in_state(await imports.aenqueue({"url": "x"}), State.COMPLETED)

    job = asyncio.run(main())
    assert (job.result, job.failures) == (b'"<p>x</p>!"', 0)
    assert told(job) == [("done", "fetch"), ("done", "check")]
    assert runs == {"fetch": 1, "check": 3}
