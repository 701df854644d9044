"""Results and headers have limits; what a store refuses for good is dead and holds up nobody."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import Bed, Through, in_state, log_lines, serving, until
from windlass import State, StoreUnavailable, Windlass
from windlass.core.jobs.settle import Transition
from windlass.worker.engine.writing import completer

LIMIT = 1_048_576


def saying(app: Windlass) -> tuple[Any, Any]:
    @app.job(name="say", max_retries=3)
    async def say(length: int) -> str:
        return "x" * length

    @app.job(name="nest", max_retries=3)
    async def nest(length: int) -> dict[str, list[str]]:
        return {"in": ["x" * length]}

    return say, nest


def test_a_result_beyond_the_limit_is_dead_at_once_and_its_neighbours_complete(bed: Bed) -> None:
    app = bed.app()
    say, nest = saying(app)

    async def main() -> None:
        calls = [(say, LIMIT - 2), (say, LIMIT - 1), (say, 2**26), (nest, LIMIT), (say, 1)]
        handles = [await handler.aenqueue(length) for handler, length in calls]
        async with serving(app):
            for place in (1, 2, 3):
                dead = await in_state(handles[place], State.DEAD)
                assert "the limit is 1,048,576" in str(dead.error)
                assert "WINDLASS_MAX_RESULT" in str(dead.error)
                assert len(dead.history) == 1
            assert len(await handles[0].aresult("60s")) == LIMIT - 2
            assert await handles[4].aresult("60s") == "x"
            assert (await handles[4].ainfo()).history == ()

    asyncio.run(main())


def test_the_limit_of_results_is_a_setting(bed: Bed) -> None:
    app = bed.app(max_result=10)
    say, _ = saying(app)

    async def main() -> None:
        async with serving(app):
            assert await (await say.aenqueue(8)).aresult("60s") == "x" * 8
            dead = await in_state(await say.aenqueue(9), State.DEAD)
            assert "11 bytes, the limit is 10" in str(dead.error)

    asyncio.run(main())


def test_headers_have_a_limit(bed: Bed) -> None:
    app = bed.app()
    say, _ = saying(app)
    for headers in ({"a": "x" * 20_000}, {"x" * 20_000: ""}, {"a": "\x01" * 5_000}):
        with pytest.raises(ValueError, match="headers must take at most 12,288 bytes"):
            say.using(headers=headers)
    say.using(headers={"a": "x" * 12_000})


def refuse_long_results(bed: Bed) -> None:
    """Have the database refuse for good what Windlass itself would store."""
    if bed.kind == "postgres":
        with psycopg.connect(bed.url) as db:
            db.execute(
                "ALTER TABLE windlass.finished_jobs "
                "ADD CHECK (coalesce(octet_length(result::text), 0) < 1000)"
            )
    else:
        with sqlite3.connect(bed.path) as db:
            db.execute(
                "CREATE TRIGGER refuse BEFORE UPDATE ON jobs WHEN length(new.result) >= 1000 "
                "BEGIN SELECT RAISE(ABORT, 'too long for us'); END"
            )


@pytest.mark.stores("sqlite", "postgres")
@pytest.mark.parametrize("bed", ["sqlite", "postgres"], indirect=True)
def test_an_outcome_that_the_store_refuses_for_good_is_dead_with_its_words(bed: Bed) -> None:
    """Prevents: an outcome that is sent for ever, and finished neighbours that run twice."""
    app = bed.app()
    say, _ = saying(app)

    async def main() -> None:
        handles = await app.aenqueue_many(say.draft(n) for n in (1, 2, 2_000, 3, 4))
        refuse_long_results(bed)
        async with serving(app):
            dead = await in_state(handles[2], State.DEAD)
            assert dead.reason is not None
            assert dead.reason.startswith("its outcome could not be stored: ")
            assert "too long for us" in dead.reason or "check constraint" in dead.reason
            for place, length in ((0, 1), (1, 2), (3, 3), (4, 4)):
                assert await handles[place].aresult("60s") == "x" * length
                assert (await handles[place].ainfo()).attempt == 1

    asyncio.run(main())


@pytest.mark.parametrize("value", [object(), "x" * 3_000_000], ids=["no JSON", "too large"])
@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_the_log_does_not_claim_that_a_run_finished_whose_result_is_refused(
    bed: Bed, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "windlass")
    app = bed.app()

    @app.job(max_retries=0)
    async def refused() -> Any:
        return value

    @app.job
    async def taken() -> int:
        return 1

    async def main() -> None:
        async with serving(app):
            await in_state(await refused.aenqueue(), State.DEAD)
            await (await taken.aenqueue()).aresult("60s")

    asyncio.run(main())
    assert [line["kind"] for line in log_lines(caplog, "job.finished")] == ["taken"]
    assert [line["kind"] for line in log_lines(caplog, "job.dead")] == ["refused"]


class Noting(Through):
    """A store that notes how many bytes of results come together, and may go away in between."""

    gone_at: int | None = None

    def __init__(self, inner: object) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self.groups: list[int] = []

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        self.groups.append(sum(len(each.result or b"") for each in transitions))
        if len(self.groups) == self.gone_at:
            raise StoreUnavailable("gone for a moment")
        if len(transitions) > 1 and any(each.result == b'"xx"' for each in transitions):
            raise ValueError("not in a group")
        return await self.inner.settle(transitions)


def test_large_results_are_written_in_small_groups(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: one message with a hundred results, which no server takes and no memory holds."""
    monkeypatch.setattr(completer, "_GROUP_BYTES", 10_000)
    store = Noting(bed.store())
    app = bed.app(store=store)
    say, _ = saying(app)

    async def main() -> None:
        drafts = [say.draft(length) for length in (4_000,) * 20 + (50_000,)]
        handles = await app.aenqueue_many(drafts)
        async with serving(app):
            for handle in handles:
                await in_state(handle, State.COMPLETED)
        assert max(group for group in store.groups if group != 50_002) <= 10_000

    asyncio.run(main())


@pytest.mark.parametrize("gone_at", [2, 3, 4, 5])
def test_stored_outcomes_of_a_split_group_are_not_sent_again(
    bed: Bed, gone_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: a job that is told to be fenced, since its half of the group was stored before."""
    store = Noting(bed.store())
    store.gone_at = gone_at
    app = bed.app(store=store)
    say, _ = saying(app)

    async def main() -> None:
        handles = await app.aenqueue_many(say.draft(n) for n in (1, 2, 3, 4))
        async with serving(app) as worker:
            for handle in handles:
                await in_state(handle, State.COMPLETED)
            await until(lambda: worker.processed == 4)

    asyncio.run(main())
    assert not log_lines(caplog, "job.fenced")
