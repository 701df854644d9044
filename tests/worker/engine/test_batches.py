"""Batches: one call for many jobs, and each of them settled for itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.app_on_store import QUICK, Bed, in_state, on_embedded_stores, serving, until
from windlass import (
    Cancel,
    ConfigError,
    Context,
    Inject,
    PermanentError,
    Retry,
    Snooze,
    State,
    Windlass,
)
from windlass.core.failures.fingerprint import place


@dataclass
class Document:
    """What is indexed."""

    id: int
    text: str = ""


class Search:
    """What handlers share."""

    name = "search"


async def work_off(app: Windlass, **flags: object) -> None:
    await asyncio.wait_for(app.arun_worker(burst=True, **QUICK | {"concurrency": 50} | flags), 60)


def test_jobs_that_wait_are_handed_over_together(bed: Bed) -> None:
    app = bed.app()
    calls: list[list[int]] = []

    @app.job(batch_size=10, batch_timeout="5s")
    async def index(documents: list[Document]) -> None:
        calls.append([document.id for document in documents])

    async def main() -> None:
        handles = await app.aenqueue_many(index.draft(Document(id=n)) for n in range(30))
        await work_off(app)
        assert {(await handle.ainfo()).state for handle in handles} == {State.COMPLETED}

    asyncio.run(main())
    assert [len(call) for call in calls] == [10, 10, 10]
    assert sorted(n for call in calls for n in call) == list(range(30))


def test_a_batch_that_does_not_fill_up_goes_when_it_is_time(bed: Bed) -> None:
    app = bed.app()
    calls: list[int] = []

    @app.job(batch_size=100, batch_timeout="50ms")
    def index(documents: Sequence[Document]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        calls.append(len(documents))

    async def main() -> None:
        async with serving(app, **QUICK | {"concurrency": 50}):
            await app.aenqueue_many(index.draft(Document(id=n)) for n in range(3))
            await until(lambda: sum(calls) == 3)

    asyncio.run(main())


def test_a_batch_never_waits_for_more_jobs_than_can_run(bed: Bed) -> None:
    app = bed.app()
    calls: list[int] = []

    @app.job(batch_size=100, batch_timeout="60s")
    async def index(numbers: list[int]) -> None:
        calls.append(len(numbers))

    async def main() -> None:
        await app.aenqueue_many(index.draft(n) for n in range(8))
        await work_off(app, concurrency=4)

    asyncio.run(main())
    assert calls == [4, 4]


def test_each_job_has_its_own_outcome(bed: Bed) -> None:
    app = bed.app()

    @app.job(batch_size=5, batch_timeout="5s", retry=Retry(max_retries=0))
    async def sort_out(words: list[str]) -> list[object]:
        said: dict[str, object] = {
            "ok": "done",
            "bad": ValueError("no such word"),
            "later": Snooze("1h"),
            "moot": Cancel("nobody asked"),
            "never": PermanentError("not in this life"),
        }
        return [said[word] for word in words]

    async def main() -> None:
        words = ("ok", "bad", "later", "moot", "never")
        handles = await app.aenqueue_many(sort_out.draft(word) for word in words)
        await work_off(app)
        ok, bad, later, moot, never = [await handle.ainfo() for handle in handles]
        assert (ok.state, ok.result) == (State.COMPLETED, b'"done"')
        assert (bad.state, str(bad.error)) == (State.DEAD, "ValueError: no such word")
        assert (later.state, later.failures) == (State.SCHEDULED, 0)
        assert (moot.state, moot.reason) == (State.CANCELLED, "nobody asked")
        assert (never.state, never.reason) == (State.DEAD, "permanent error")

    asyncio.run(main())


def test_an_exception_of_a_batch_fails_all_of_its_jobs_and_no_others(bed: Bed) -> None:
    app = bed.app()
    calls = 0

    @app.job(batch_size=3, batch_timeout="5s", retry=Retry(max_retries=0))
    async def index(_numbers: list[int]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise SystemExit("broken")

    async def main() -> None:
        handles = await app.aenqueue_many(index.draft(n) for n in range(6))
        await work_off(app)
        states = sorted([(await handle.ainfo()).state for handle in handles])
        assert states == [State.COMPLETED] * 3 + [State.DEAD] * 3

    asyncio.run(main())


@pytest.mark.parametrize("answer", [["one"], "three", {"a": 1}])
def test_an_answer_that_cannot_be_shared_out_is_refused(bed: Bed, answer: object) -> None:
    app = bed.app()

    @app.job(batch_size=2, batch_timeout="5s")
    async def index(_numbers: list[int]) -> object:
        return answer

    async def main() -> None:
        handles = await app.aenqueue_many(index.draft(n) for n in range(2))
        await work_off(app)
        for handle in handles:
            job = await handle.ainfo()
            assert job.state is State.DEAD
            assert "one result for each of its 2 jobs" in str(job.error)

    asyncio.run(main())


def test_a_job_whose_time_is_up_leaves_the_others_alone(bed: Bed) -> None:
    app = bed.app()
    go = asyncio.Event()

    @app.job(batch_size=2, batch_timeout="5s", retry=Retry(max_retries=0))
    async def index(_numbers: list[int]) -> list[str]:
        await go.wait()
        return ["a", "b"]

    async def main() -> None:
        slow = await index.using(timeout="300ms").aenqueue(1)
        patient = await index.using(timeout="30s").aenqueue(2)
        async with serving(app, **QUICK | {"concurrency": 5}):
            late = await in_state(slow, State.DEAD)
            go.set()
            await in_state(patient, State.COMPLETED)
        assert str(late.error).startswith("TimeoutError")

    asyncio.run(main())


def test_an_abandoned_call_is_cancelled(bed: Bed) -> None:
    app = bed.app()
    cancelled = asyncio.Event()

    @app.job(batch_size=2, batch_timeout="5s", timeout="200ms", retry=Retry(max_retries=0))
    async def index(_numbers: list[int]) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def main() -> None:
        await app.aenqueue_many(index.draft(n) for n in range(2))
        await work_off(app)
        await asyncio.wait_for(cancelled.wait(), 60)

    asyncio.run(main())


def test_a_batch_has_provided_values_and_stays_callable(bed: Bed) -> None:
    app = bed.app()
    seen: list[tuple[str, list[int]]] = []

    @app.provide
    def search() -> Search:
        return Search()

    @app.job(batch_size=2, batch_timeout="5s")
    async def index(numbers: list[int], engine: Search = Inject) -> None:
        seen.append((engine.name, numbers))

    async def main() -> None:
        await app.aenqueue_many(index.draft(n) for n in range(2))
        await work_off(app)
        await index([7], Search())

    asyncio.run(main())
    assert [(name, sorted(numbers)) for name, numbers in seen] == [
        ("search", [0, 1]),
        ("search", [7]),
    ]


def test_invalid_batch_handlers_are_refused_at_import() -> None:
    app = Windlass("memory://")
    job: Any = app.job
    for size in (0, -1, True):
        with pytest.raises(ValueError, match="batch_size must be a whole number between 1 and"):
            job(batch_size=size)(_good)
    with pytest.raises(ConfigError, match="a child process runs one job"):
        job(batch_size=5, isolate=True)(_good)
    with pytest.raises(ConfigError, match="the list of payloads"):
        job(batch_size=5)(_no_list)
    with pytest.raises(ConfigError, match="the list of payloads"):
        job(batch_size=5)(_two)
    with pytest.raises(ConfigError, match="a batch handler cannot take a Context"):
        job(batch_size=5)(_with_context)


async def _good(numbers: list[int]) -> None:
    del numbers


async def _no_list(number: int) -> None:
    del number


async def _two(numbers: list[int], others: list[int]) -> None:
    del numbers, others


async def _with_context(ctx: Context, numbers: list[int]) -> None:
    del ctx, numbers


@pytest.mark.parametrize("in_thread", [False, True])
@on_embedded_stores
def test_the_place_of_an_error_for_one_job_is_where_the_handler_met_it(
    bed: Bed, in_thread: bool
) -> None:
    """Prevents: all errors that batches return are said to come from inside of Windlass."""
    app = bed.app()

    def look_up(word: str) -> Exception:
        if word == "made":
            return ValueError("never raised")
        try:
            raise KeyError(word)
        except KeyError as error:
            return error

    def find(words: Sequence[str]) -> list[Exception]:
        return [look_up(word) for word in words]

    async def find_async(words: Sequence[str]) -> list[Exception]:
        return find(words)

    kind = app.job(name="find", batch_size=2, max_retries=0)(find if in_thread else find_async)

    async def main() -> None:
        handles = await app.aenqueue_many(kind.draft(word) for word in ("made", "met"))
        await work_off(app)
        made, met = [(await handle.ainfo()).error for handle in handles]
        assert made is not None
        assert met is not None
        assert "File" not in made.traceback
        assert "ValueError: never raised" in made.traceback
        assert "in look_up" in met.traceback
        assert place(met) == "test_batches.py:look_up"
        assert "windlass" not in met.traceback

    asyncio.run(main())
