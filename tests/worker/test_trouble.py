"""A worker goes on through whatever its store does to it, and loses no outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Through, in_state, log_lines, serving, until
from windlass import State, StoreUnavailable
from windlass.core.claims.lanes import Claim, Queues, Sweep
from windlass.core.jobs.job import Job, NewJob
from windlass.core.jobs.settle import Transition
from windlass.core.records import Json, RecordPage


class Unreliable(Through):
    """A store of which every method fails the first times it is called."""

    def __init__(self, inner: Any, **failures: int) -> None:
        super().__init__(inner)
        self.failures = failures

    def _fail(self, method: str) -> None:
        if self.failures.get(method, 0) > 0:
            self.failures[method] -= 1
            raise StoreUnavailable(f"{method}: gone for a moment")

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        self._fail("claim")
        return await self.inner.claim(claim, worker=worker, token=token)

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        self._fail("sweep")
        return await self.inner.sweep(fresh=fresh, queues=queues)

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        self._fail("settle")
        return await self.inner.settle(transitions)

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        self._fail("records")
        return await self.inner.records(prefix, page)


@pytest.mark.parametrize("method", ["claim", "sweep"])
def test_an_error_while_claiming_backs_off_and_goes_on(
    bed: Bed, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "windlass.service")
    store = Unreliable(bed.store(), **{method: 3})
    app = bed.app(store=store)

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app):
            assert await (await work.aenqueue()).aresult("60s") == 1

    asyncio.run(main())
    assert store.failures[method] == 0
    failed = [line for line in log_lines(caplog, "service.failed") if line["service"] == "claimer"]
    assert failed[0]["failures"] == 1
    assert all(line["next_in"] >= 0.05 for line in failed)


def test_an_outcome_whose_fate_is_unknown_is_sent_again(bed: Bed) -> None:
    store = Unreliable(bed.store(), settle=3)
    app = bed.app(store=store)
    ran: list[int] = []

    @app.job
    async def work(n: int) -> int:
        ran.append(n)
        return n

    async def main() -> None:
        async with serving(app):
            handles = [await work.aenqueue(n) for n in range(5)]
            assert [await handle.aresult("60s") for handle in handles] == [0, 1, 2, 3, 4]
            assert [(await handle.ainfo()).attempt for handle in handles] == [1] * 5

    asyncio.run(main())
    assert sorted(ran) == [0, 1, 2, 3, 4]


class CommitsAndForgets(Through):
    """A store whose first answer is lost after the commit."""

    lost = False

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        answer = await self.inner.settle(transitions)
        if not self.lost:
            self.lost = True
            raise StoreUnavailable("the connection broke after the commit")
        return answer


def test_an_outcome_that_was_stored_although_nobody_said_so_stays_as_it_is(bed: Bed) -> None:
    app = bed.app(store=CommitsAndForgets(bed.store()))

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app):
            handle = await work.aenqueue()
            assert await handle.aresult("60s") == 1
            assert await (await work.aenqueue()).aresult("60s") == 1
            assert (await handle.ainfo()).attempt == 1

    asyncio.run(main())


class Fussy(Through):
    """A store that refuses any group with a certain result in it."""

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if any(transition.result == b'"poison"' for transition in transitions):
            raise ValueError("cannot store this")
        return await self.inner.settle(transitions)


def test_an_outcome_that_the_store_refuses_does_not_stop_the_others(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app(store=Fussy(bed.store()))

    @app.job
    async def say(text: str) -> str:
        return text

    async def main() -> None:
        texts = ["a", "b", "poison", "c", "d"]
        handles = await app.aenqueue_many(say.draft(text) for text in texts)
        async with serving(app):
            dead = await in_state(handles[2], State.DEAD)
            assert dead.reason == "its outcome could not be stored: cannot store this"
            for place in (0, 1, 3, 4):
                assert await handles[place].aresult("60s") == texts[place]

    asyncio.run(main())
    assert log_lines(caplog, "settle.refused")


def test_an_ordered_job_whose_outcome_is_refused_lets_the_next_one_pass(bed: Bed) -> None:
    """Prevents: a token that waits for ever for the word that its job was settled."""
    app = bed.app(store=Fussy(bed.store()))

    @app.job(key=lambda text: "same", ordered=True)
    async def say(text: str) -> str:
        return text

    async def main() -> None:
        handles = await app.aenqueue_many(say.draft(text) for text in ("poison", "a"))
        async with serving(app):
            assert await handles[1].aresult("60s") == "a"
            assert await handles[0].astate() is State.DEAD

    asyncio.run(main())


class Broken(Through):
    """A store that nothing of a certain job can ever be written to."""

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if any(transition.result == b'"poison"' for transition in transitions) or any(
            transition.state is State.DEAD for transition in transitions
        ):
            raise ValueError("cannot store this")
        return await self.inner.settle(transitions)


def test_an_outcome_that_cannot_be_stored_in_any_way_does_not_stop_the_others(bed: Bed) -> None:
    """Prevents: the completer sends the same hopeless group for ever, and nothing is settled."""
    app = bed.app(store=Broken(bed.store()))

    @app.job
    async def say(text: str) -> str:
        return text

    async def main() -> None:
        async with serving(app):
            await say.aenqueue("poison")
            assert await (await say.aenqueue("fine")).aresult("60s") == "fine"

    asyncio.run(main())


def test_an_unknown_kind_stays_pending_and_is_warned_of(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    store = bed.store()
    here, elsewhere = bed.app(store=store), bed.app(store=store)

    @here.job
    async def known() -> int:
        return 1

    @elsewhere.job
    async def unknown() -> int:
        return 2

    async def main() -> None:
        stranger = await unknown.aenqueue()
        async with serving(here):
            assert await (await known.aenqueue()).aresult("60s") == 1
            await until(lambda: log_lines(caplog, "kind.unserved"))
            job = await stranger.ainfo()
            assert (job.state, job.attempt) == (State.PENDING, 0)

    asyncio.run(main())
    (line,) = log_lines(caplog, "kind.unserved")
    assert line["kind"] == "unknown"
    assert "is its module imported?" in line["remedy"]


def test_of_hundreds_of_unknown_kinds_some_are_named_and_the_others_counted(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    @app.job
    async def known() -> None: ...

    jobs = [
        NewJob(id=app.ids.next(), kind=f"stranger{n:03}", queue="default", payload=b"{}")
        for n in range(300)
    ]

    async def main() -> None:
        await app.store.enqueue(jobs)
        async with serving(app) as worker:
            await until(lambda: log_lines(caplog, "kinds.unserved"))
            (unserved,) = [each for each in worker._parts.chores if each.name == "unserved_kinds"]
            await unserved.tick()

    asyncio.run(main())
    named = [line["kind"] for line in log_lines(caplog, "kind.unserved")]
    assert named == [f"stranger{n:03}" for n in range(20)]
    (line,) = log_lines(caplog, "kinds.unserved")
    assert line["others"] == 280
    assert "windlass doctor" in line["remedy"]


def test_a_kind_that_another_worker_knows_is_not_warned_of(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    store = bed.store()
    here, elsewhere = bed.app(store=store), bed.app(store=store)
    ticked = asyncio.Event()

    @here.job
    async def known() -> None: ...

    @elsewhere.job
    async def unknown() -> None: ...

    async def main() -> None:
        async with serving(elsewhere, queues=["other"]):
            await unknown.aenqueue()
            async with serving(here) as worker:
                (unserved,) = [
                    each for each in worker._parts.chores if each.name == "unserved_kinds"
                ]
                await unserved.tick()
                ticked.set()

    asyncio.run(main())
    assert ticked.is_set()
    assert log_lines(caplog, "kind.unserved") == []


def test_a_paused_queue_is_not_served_until_it_is_resumed(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        async with serving(app) as worker:
            assert await app.control.apause("slow")
            assert not await app.control.apause("slow")
            assert (await app.control.apaused()).queues == {"slow"}
            await until(lambda: "slow" in worker._state.policies.paused.queues)
            handle = await work.using(queue="slow").aenqueue()
            assert await (await work.aenqueue()).aresult("60s") == 1
            assert await handle.astate() is State.PENDING
            assert await app.control.aresume("slow")
            assert not await app.control.aresume("slow")
            assert await handle.aresult("60s") == 1

    asyncio.run(main())


class SlowToTell(Through):
    """A store that takes its time to say which queues are paused."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.go = asyncio.Event()

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        await self.go.wait()
        return await self.inner.records(prefix, page)


def test_a_worker_that_starts_does_not_serve_a_queue_that_was_paused_before(bed: Bed) -> None:
    """Prevents: a restart runs jobs of a paused queue before it has learnt of the pause."""
    store = SlowToTell(bed.store())
    app = bed.app(store=store)

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        await app.control.apause("slow")
        paused = await work.using(queue="slow").aenqueue()
        running = asyncio.create_task(serve())
        # Long enough for several claims, if the worker makes any.
        await asyncio.sleep(0.3)
        store.go.set()
        await running
        job = await paused.ainfo()
        assert (job.state, job.attempt) == (State.PENDING, 0)

    async def serve() -> None:
        async with serving(app):
            await (await work.aenqueue()).aresult("60s")

    asyncio.run(main())


def test_a_worker_whose_store_cannot_be_reached_at_start_says_so(bed: Bed) -> None:
    class Away(Through):
        async def register(self, worker: object) -> None:
            raise StoreUnavailable("nobody there")

    app = bed.app(store=Away(bed.store()))

    async def main() -> None:
        with pytest.raises(StoreUnavailable, match="nobody there"):
            await app.arun_worker()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
