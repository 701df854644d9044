"""Isolated jobs run in child processes, with everything around them, and are stopped from outside.

The handlers are in nursery.py, of which each test gets a copy that children can import.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import STORES, Bed, charged, in_state, serving, until
from tests.worker.isolation.children import is_alive, notes
from windlass import ConfigError, State
from windlass.core.claims.lanes import Head
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import Pool, Room
from windlass.core.jobs.job import Lane
from windlass.worker.engine.claimer import _reservation
from windlass.worker.isolation import child_pool as children

on_memory = pytest.mark.parametrize("bed", ["memory"], indirect=True)
on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
SLOW = 30.0
"""Seconds within which a child has started and run a job, also on a busy machine."""


# -- where and how they run --------------------------------------------------------------------


def test_an_isolated_job_runs_in_a_child_and_the_next_in_the_same(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            pid, parent, is_main = await (await nursery.where.aenqueue()).aresult("30s")
            assert (parent, is_main) == (os.getpid(), True)
            assert pid != os.getpid()
            again = await (await nursery.where_async.aenqueue()).aresult("30s")
            assert again == (pid, os.getpid())
        assert not is_alive(pid)

    asyncio.run(main())


@on_memory
def test_a_child_that_ends_with_its_worker_closes_its_resources(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            pid, _, _ = await (await nursery.where.aenqueue()).aresult("30s")
        assert (nursery.HERE / f"closed-{pid}").exists()
        assert (nursery.HERE / f"closed-{os.getpid()}").exists()

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["sqlite", "postgres"], indirect=True)
def test_a_handler_in_a_child_hears_what_was_done_before(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            for handler in (nursery.already_done, nursery.already_done_async):
                keyed = handler.using(idempotency_key="k")
                answers = [await (await keyed.aenqueue()).aresult("30s") for _ in range(2)]
                assert answers == [False, True]
            pids = {await (await nursery.once.aenqueue(7)).aresult("30s") for _ in range(2)}
            assert len(pids) == 1
        assert notes(nursery) == ["once 7"]

    asyncio.run(main())


@on_memory
def test_a_child_that_cannot_reach_the_store_says_so_when_it_is_asked(
    bed: Bed, nursery: Any
) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            handle = await nursery.already_done.using(idempotency_key="k").aenqueue()
            job = await charged(handle, 1)
            assert "lives in the memory of the worker" in str(job.error)

    asyncio.run(main())


@on_memory
def test_a_child_that_is_not_needed_any_more_closes_its_resources(
    bed: Bed, nursery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_IDLE_SECONDS", 0.1)

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=2):
            handles = [await nursery.rest.aenqueue() for _ in range(2)]
            pids = {await handle.aresult("30s") for handle in handles}
            assert len(pids) == 2
            closed = [nursery.HERE / f"closed-{pid}" for pid in pids]
            await until(lambda: sum(each.exists() for each in closed) == 1)

    asyncio.run(main())


@on_memory
def test_a_resource_that_does_not_close_does_not_keep_a_worker_from_its_end(
    bed: Bed, nursery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nursery.HERE / "clings").touch()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with serving(nursery.app, isolated_processes=1):
            pid, _, _ = await (await nursery.where.aenqueue()).aresult("30s")
            began = loop.time()
        assert not is_alive(pid)
        return loop.time() - began

    assert asyncio.run(main()) < 5


@on_memory
def test_everything_around_a_handler_is_around_it_in_a_child(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            assert await (await nursery.surrounded.aenqueue(1)).aresult("30s") == 42
            assert await (await nursery.hooked.aenqueue()).aresult("30s") == ["prepared"]
            await charged(await nursery.raise_it.aenqueue("ValueError"), 1)
        assert notes(nursery) == ["done 42", "error raise_it ValueError"]

    asyncio.run(main())


FAILED_RUNS = [
    ("raise_it_async", ["ValueError"], ["ValueError"]),
    ("raise_it_async", ["SystemExit"], ["SystemExit"]),
    ("cancel_itself", ["handler"], ["CancelledError"]),
    ("return_an_object", [], ["ResultInvalid"]),
    ("overrun", [], ["TimeoutError"]),
    ("overrun_async", [], ["TimeoutError"]),
    ("ignore_everything", [], ["TimeoutError"]),
    ("hoard", [], ["MemoryExceeded"]),
    ("die", ["exit"], ["JobCrashed"] * 3),
]
"""Ways to fail in a child, and the errors that the hook hears of."""


@on_memory
def test_the_hook_for_errors_hears_once_of_every_failed_run_in_a_child(
    bed: Bed, nursery: Any
) -> None:
    """Prevents failures of which no hook hears, since the child that would tell it is gone."""

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            for kind, args, _ in FAILED_RUNS:
                handle = await getattr(nursery, kind).aenqueue(*args)
                await in_state(handle, State.DEAD, within=SLOW)

    asyncio.run(main())
    heard = [line for line in notes(nursery) if line.startswith("error ")]
    assert heard == [f"error {kind} {error}" for kind, _, errors in FAILED_RUNS for error in errors]


@on_memory
@pytest.mark.parametrize(
    ("kind", "state", "failures"),
    [
        ("linger_after_success", State.COMPLETED, []),
        ("linger_after_failure", State.DEAD, ["failed"]),
        ("kill_after_success", State.COMPLETED, []),
    ],
)
def test_a_hook_that_ends_its_child_hears_of_one_end_and_the_job_has_it(
    bed: Bed, nursery: Any, kind: str, state: State, failures: list[str]
) -> None:
    """Prevents: a job that its hooks heard to be completed, and then to have timed out."""

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            job = await in_state(await getattr(nursery, kind).aenqueue(), state, within=SLOW)
            assert job.attempt == 1
            assert [each.outcome for each in job.history] == failures
            assert (await (await nursery.where.aenqueue()).aresult("30s"))[0] != os.getpid()

    asyncio.run(main())
    assert [line for line in notes(nursery) if line.startswith("heard")] == [
        f"heard {kind} in a child"
    ]


def test_progress_comes_out_of_a_child(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            handle = await nursery.tell_progress.aenqueue()

            async def latest() -> bool:
                progress = (await handle.ainfo()).progress
                return progress is not None and progress.message == "step 999"

            await until(latest, within=SLOW)
            (nursery.HERE / "gate").touch()
            await handle.aresult("30s")

    asyncio.run(main())


@on_memory
def test_an_exception_in_a_child_is_settled_by_the_retry_policy(bed: Bed, nursery: Any) -> None:
    """Exceptions cannot travel, so it is the child that settles."""

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            for what, state in [("RetryAfter", State.SCHEDULED), ("PermanentError", State.DEAD)]:
                job = await in_state(await nursery.raise_it.aenqueue(what), state, within=SLOW)
                assert job.failures == 1
                assert job.error is not None
                assert job.error.type == f"windlass.{what}"
                assert "raise {" in job.error.traceback
            job = await in_state(await nursery.raise_it.aenqueue("RetryAfter"), State.SCHEDULED)
            assert (job.due_at - job.created_at).total_seconds() > 3000
            job = await in_state(await nursery.snooze.aenqueue(), State.SCHEDULED)
            assert (job.failures, job.reason) == (0, "snoozed")

    asyncio.run(main())


STOPPERS = ("SystemExit", "KeyboardInterrupt", "CancelledError", "StopIteration", "Broken")


@on_memory
def test_sys_exit_in_a_handler_fails_the_job_and_not_the_child(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        kinds = (nursery.raise_it.using(max_retries=0), nursery.raise_it_async)
        async with serving(nursery.app, isolated_processes=1):
            pid = (await (await nursery.where.aenqueue()).aresult("30s"))[0]
            for what, kind in product(STOPPERS, kinds):
                job = await in_state(await kind.aenqueue(what), State.DEAD)
                assert (what, job.failures, job.crashes) == (what, 1, 0)
            assert (await (await nursery.where.aenqueue()).aresult("30s"))[0] == pid

    asyncio.run(main())


@pytest.mark.stores(*STORES)
def test_an_isolated_handler_enqueues_where_its_worker_claims(bed: Bed, nursery: Any) -> None:
    """In the worker's own memory it cannot, and says so: the job would be lost in the child's."""

    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1):
            handle = await nursery.enqueue_another.using(max_retries=0).aenqueue()
            if bed.kind == "memory":
                job = await in_state(handle, State.DEAD, within=SLOW)
                assert "lives in the memory of the worker" in str(job.error)
            else:
                other = await handle.aresult("30s")
                await nursery.app.handle(other).aresult("30s")

    asyncio.run(main())


@on_postgres
@pytest.mark.parametrize("kind", ["transact", "transact_async"])
def test_a_transaction_in_a_child_completes_the_job(bed: Bed, nursery: Any, kind: str) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1) as worker:
            job = await in_state(
                await getattr(nursery, kind).aenqueue(), State.COMPLETED, State.DEAD, within=SLOW
            )
            assert (job.state, job.result, job.error) == (State.COMPLETED, None, None)
            await until(lambda: worker.processed == 1)
            assert worker._state.fenced == 0

    asyncio.run(main())
    with psycopg.connect(bed.url) as db:
        assert db.execute("SELECT n FROM public.done").fetchall() == [(1,)]


@on_memory
def test_an_app_may_isolate_its_sync_handlers_and_only_those(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=1, isolate=True):
            assert await (await nursery.ordinary.aenqueue()).aresult("30s") == os.getpid()
            assert await (await nursery.ordinary_in_thread.aenqueue()).aresult("30s") != os.getpid()

    asyncio.run(main())


@on_memory
def test_no_more_isolated_jobs_are_claimed_than_children_are_free(bed: Bed, nursery: Any) -> None:
    async def main() -> None:
        async with serving(nursery.app, isolated_processes=2) as worker:
            handles = [await nursery.wait.aenqueue() for _ in range(5)]
            await until(lambda: len(notes(nursery)) == 2, within=SLOW)
            assert worker._state.runs.in_isolated_processes == 2
            states = [(await handle.ainfo()).state for handle in handles]
            assert (states.count(State.RUNNING), states.count(State.PENDING)) == (2, 3)
            (reason, *_) = (
                await nursery.app.control.awhy(handles[states.index("pending")].id)
            ).reasons
            assert reason.facts == {"workers": [worker.id], "isolated_processes": 2}
            assert worker._parts.status.pulse().in_isolated_processes == 2
            (nursery.HERE / "gate").touch()
            for handle in handles:
                await handle.aresult("30s")

    asyncio.run(main())


def test_child_processes_reserved_by_a_claim_under_way_are_not_asked_for_twice() -> None:
    kinds = {"isolated": Pool.ISOLATED}
    head = Head(lane=Lane("default", "isolated"), position=datetime(2030, 1, 1, tzinfo=UTC))
    room = Room(slots=10, threads=4, isolated_processes=2)
    claim = plan([head], Policies(kinds=kinds), room, at_most=100)
    assert _reservation(claim) == Room(slots=10, threads=0, isolated_processes=2, free=10)


# -- what cannot be isolated -------------------------------------------------------------------


@on_memory
def test_a_worker_refuses_an_isolated_handler_whose_app_has_no_name(bed: Bed) -> None:
    app = bed.app()

    @app.job(isolate=True)
    def local() -> None: ...

    async def main() -> None:
        with pytest.raises(ConfigError, match="assign it at module level"):
            await app.worker().run()

    asyncio.run(main())


@on_memory
def test_a_worker_refuses_an_isolated_handler_that_an_import_does_not_register(
    bed: Bed, nursery: Any
) -> None:
    def local() -> None: ...

    nursery.app.job(isolate=True)(local)

    async def main() -> None:
        with pytest.raises(ConfigError, match="no handler for the isolated kind local"):
            await nursery.app.worker().run()

    asyncio.run(main())


@on_memory
def test_cpu_and_memory_mean_a_child_and_contradict_isolate_false(bed: Bed) -> None:
    app = bed.app()

    @app.job(cpu_bound=True)
    def compute() -> None: ...

    @app.job(memory="1GB")
    async def fill() -> None: ...

    assert {kind: pool.value for kind, pool in app.registry.pools().items()} == {
        "compute": "isolated_processes",
        "fill": "isolated_processes",
    }
    with pytest.raises(ConfigError, match="leave out isolate=False"):
        app.job(cpu_bound=True, isolate=False, name="both")(lambda: None)
    with pytest.raises(ValueError, match="write it like '512MB'"):
        app.job(memory="lots", name="lots")(lambda: None)
