"""Handlers that block, hang, raise and return what no handler should: the worker lives."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta

import pytest

from tests.support.worker_processes import LEASE, NOISE, PATIENCE, WorkerProcess, Yard, until
from windlass import Context, State, Windlass
from windlass.core.failures.describe import MESSAGE_LIMIT, TRACEBACK_LIMIT
from windlass.core.jobs.job import Job

LONG = 3 * LEASE + 0.5
"""Seconds that a job runs which is longer than three leases."""


def seasoned_pair(yard: Yard) -> list[WorkerProcess]:
    """Start two workers, each of which would rescue the other's jobs if it could."""
    workers = [yard.worker(), yard.worker()]
    yard.seasoned(*[worker.started() for worker in workers])
    return workers


@pytest.mark.long
def test_a_handler_that_blocks_the_loop_keeps_its_lease_and_is_found_out(yard: Yard) -> None:
    """Case 7. Prevents a second run of a job whose handler forgot that it is async."""
    workers = seasoned_pair(yard)
    job = yard.enqueue("block_loop_for", seconds=LONG)
    pid = yard.begun(job)
    until(lambda: _lags(yard), "a metric that shows the lag")
    done = yard.settled(job)

    (holder,) = [worker for worker in workers if worker.pid == pid]
    assert (done.state, done.attempt, done.crashes) == (State.COMPLETED, 1, 0)
    assert len(yard.ledger.entries("start")) == 1
    assert not holder.events("lease.lost")
    stalled = holder.event("loop.stalled")
    assert "block_loop_for" in stalled["stack"]
    assert "time.sleep(seconds)" in stalled["stack"]
    holder.event("loop.moves_again")
    until(lambda: not _lags(yard), "a metric that shows its end")


def _lags(yard: Yard) -> list[timedelta]:
    """Return by how much loops are late, as far as anybody would notice."""
    lags = [each.pulse.loop_lag for each in yard.workers()]
    return [lag for lag in lags if lag > timedelta(seconds=1)]


@pytest.mark.long
def test_a_job_longer_than_three_leases_runs_once(yard: Yard) -> None:
    """Case 46. Prevents a visibility timeout in disguise: long jobs that run again and again.

    The last one blocks the loop of its worker, whose lease is kept all the same (case 7).
    """
    seasoned_pair(yard)
    jobs = [yard.enqueue(kind, gate="long") for kind in ("wait", "wait_in_thread")]
    for job in jobs:
        yard.begun(job)
    jobs.append(yard.enqueue("block_loop_until", gate="long", attempts=1))
    yard.begun(jobs[-1])
    began = max(entry.at for entry in yard.ledger.entries("start"))
    until(lambda: _passed(yard, began + LONG), "three leases", within=LONG + PATIENCE)
    yard.open_gate("long")
    done = [yard.settled(job) for job in jobs]

    assert [(job.state, job.attempt, job.crashes) for job in done] == [(State.COMPLETED, 1, 0)] * 3
    assert len(yard.ledger.entries("start")) == 3


def _passed(yard: Yard, moment: float) -> bool:
    """Say whether the store's clock is past a moment, by the newest heartbeat in it."""
    return any(worker.last_seen.timestamp() > moment for worker in yard.workers())


def test_a_job_longer_than_three_leases_runs_once_in_memory() -> None:
    """Case 46, on the store that has no file: two workers in one process, each a rescuer."""
    app = Windlass("memory://")
    runs: list[str] = []

    @app.job
    async def long(ctx: Context) -> None:
        runs.append(ctx.worker_id)
        await asyncio.sleep(3.5)

    async def main() -> Job:
        workers = [app.worker(lease="1s", poll_interval="0.1s", threads=1) for _ in range(2)]
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        handle = await long.aenqueue()
        await handle.aresult(timeout=PATIENCE)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        return await handle.ainfo()

    done = asyncio.run(main())
    assert (done.state, done.attempt, done.crashes) == (State.COMPLETED, 1, 0)
    assert len(runs) == 1


@pytest.mark.long
def test_a_thread_that_never_returns_costs_its_job_and_not_its_slot(yard: Yard) -> None:
    """Case 9. Prevents a worker that runs out of threads, and one that cannot be stopped."""
    worker = yard.worker(threads=1, shutdown_timeout="5s")
    worker.started()
    hung = yard.settled(yard.enqueue("loop_forever"))
    others = [yard.settled(yard.enqueue(kind)) for kind in ("quick_in_thread", "quick")]

    assert (hung.state, hung.failures) == (State.DEAD, 1)
    assert [attempt.outcome for attempt in hung.history] == ["timed out"]
    assert hung.error is not None
    assert hung.error.type == "TimeoutError"
    assert [job.state for job in others] == [State.COMPLETED] * 2
    assert [job.result for job in others] == [str(worker.pid).encode()] * 2
    assert "loop_forever" in worker.event("thread.lost")["stack"]
    worker.send(signal.SIGTERM)
    assert worker.ended(within=5 + 5 + NOISE) == 0


STOPPERS = ("SystemExit", "KeyboardInterrupt", "CancelledError", "GeneratorExit")


@pytest.mark.long
def test_sys_exit_in_a_handler_fails_only_its_own_job(yard: Yard) -> None:
    """Case 10. Prevents one `sys.exit()` in a handler from taking the whole worker with it."""
    worker = yard.worker()
    worker.started()
    for kind in ("fail", "fail_in_thread"):
        for what in (*STOPPERS, "StopIteration", "StopAsyncIteration"):
            failed = yard.settled(yard.enqueue(kind, what=what))
            assert (failed.state, failed.failures) == (State.DEAD, 1), (kind, what)
            assert failed.error is not None
            # What would end the coroutine that awaits the thread is told as what was raised.
            wrapped = what not in STOPPERS or (kind, what) == ("fail_in_thread", "GeneratorExit")
            expected = ("RuntimeError", what) if wrapped else what
            assert failed.error.type.endswith(expected), (kind, what, failed.error)
    _assert_lives(yard, worker)


UNSPEAKABLE = {
    "nul": "NUL",
    "surrogate": "surrogate",
    "nan": "NaN",
    "infinity": "infinities",
    "opaque": "Opaque has no JSON form",
    "circle": "refers to itself",
}


@pytest.mark.long
def test_a_result_that_cannot_be_stored_fails_its_job_for_that_reason(yard: Yard) -> None:
    """Cases 38 and 40. Prevents the job that is stuck because its outcome cannot be written."""
    worker = yard.worker()
    worker.started()
    for what, said in UNSPEAKABLE.items():
        failed = yard.settled(yard.enqueue("give", what=what))
        assert (failed.state, failed.failures, failed.result) == (State.DEAD, 1, None), what
        assert failed.error is not None
        assert failed.error.type == "windlass.ResultInvalid", what
        assert said in failed.error.message, what
        assert said in (failed.reason or ""), what
    broken = yard.settled(yard.enqueue("give", what="explosive"))
    assert (broken.state, broken.failures) == (State.DEAD, 1)
    assert "boom" in str(broken.error)
    _assert_lives(yard, worker)


@pytest.mark.long
def test_an_outcome_that_makes_no_sense_still_settles_its_job(yard: Yard) -> None:
    """Case 38. Prevents the job that runs for ever in the books: lease kept, run long over."""
    worker = yard.worker()
    worker.started()
    told = yard.settled(yard.enqueue("give", what="cancel for a surrogate"))
    assert told.state is State.CANCELLED
    assert told.reason == r"before\ud800after\x00"
    yard.settled(yard.enqueue("give", what="cancel for no text"))
    for what in ("hollow", "nested"):
        job = yard.enqueue("fail_again", what=what)
        failed = yard.settled(job, State.SCHEDULED, State.DEAD)
        assert failed.failures == 1, what
    _assert_lives(yard, worker)


@pytest.mark.long
def test_an_error_that_cannot_be_described_is_recorded_as_far_as_possible(yard: Yard) -> None:
    """Cases 38 and 41. Prevents an exception that breaks whoever wants to write it down."""
    worker = yard.worker()
    worker.started()
    for kind in ("fail", "fail_in_thread"):
        errors = {}
        for what in ("unprintable", "huge", "cyclic", "nul", "surrogate"):
            failed = yard.settled(yard.enqueue(kind, what=what))
            assert (failed.state, failed.failures) == (State.DEAD, 1), what
            assert failed.error is not None
            errors[what] = failed.error
        assert errors["unprintable"].type.endswith("Unprintable")
        assert "raised RuntimeError" in errors["unprintable"].message
        assert MESSAGE_LIMIT <= len(errors["huge"].message) < MESSAGE_LIMIT + 100
        assert len(errors["huge"].traceback) < TRACEBACK_LIMIT + 100
        assert errors["cyclic"].message == "first of the cycle"
        assert errors["cyclic"].traceback.count("second of the cycle") == 1
        assert errors["nul"].message == r"before\x00after"
        assert errors["surrogate"].message == r"before\ud800after"
    _assert_lives(yard, worker)
    assert worker.log_size() < 2_000_000


def _assert_lives(yard: Yard, worker: WorkerProcess) -> None:
    """Assert that a worker is the same process as before, and still runs jobs of both sorts."""
    for kind in ("quick", "quick_in_thread"):
        assert yard.settled(yard.enqueue(kind)).result == str(worker.pid).encode()
    assert worker.is_running()
