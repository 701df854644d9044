"""Processes that die at the worst moment: what their transactions held is done once, or never."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import Yard, until
from windlass import State

EFFECTS = "CREATE TABLE public.effects (job uuid NOT NULL, attempt integer NOT NULL)"


def effects(yard: PostgresYard) -> dict[str, int]:
    """Count the effects that were committed, by job."""
    return dict(yard.ask("SELECT job::text, count(*)::int FROM public.effects GROUP BY job"))


def test_an_effect_before_a_crash_happens_again_under_the_same_idempotency_key(yard: Yard) -> None:
    """Case 14. Prevents a key that changes with the attempt, by which nobody could tell repeats."""
    holder = yard.worker()
    job = yard.enqueue("take_effect", gate="never", attempts=1)
    yard.begun(job)
    effect = f"effect windlass-{job}"
    until(lambda: yard.ledger.entries(effect, job), "the first effect")
    holder.kill()

    yard.worker()
    done = yard.settled(job)

    assert (done.state, done.attempt, done.crashes) == (State.COMPLETED, 2, 0)
    assert [entry.attempt for entry in yard.ledger.entries(effect)] == [1, 2]
    assert len(yard.ledger.entries()) == 4


@pytest.mark.long
def test_a_transaction_whose_lease_is_lost_commits_nothing(postgres_yard: PostgresYard) -> None:
    """Case 14. Prevents a worker that stood still from committing what its successor did already.

    It stands still inside two transactions, one of them in a thread that no cancellation reaches,
    and after a third, whose job is over although its handler is not.
    """
    yard = postgres_yard
    yard.ask(EFFECTS)
    holder = yard.worker()
    inside = yard.enqueue("transact", gate="late", attempts=1)
    in_thread = yard.enqueue("transact_in_thread", gate="late", attempts=1)
    after = yard.enqueue("transact", after="late")
    for job, what in [(inside, "inside"), (in_thread, "inside"), (after, "committed")]:
        until(lambda: yard.ledger.entries(what, job), f"{what} of {job}")  # noqa: B023
    assert effects(yard) == {str(after): 1}
    other = yard.worker()
    other_id = other.started()

    yard.freeze(holder)
    done = [yard.settled(job) for job in (inside, in_thread, after)]
    yard.open_gate("late")
    holder.thaw()
    for job in (inside, in_thread):
        holder.event("job.fenced", job_id=str(job))

    assert [job.state for job in done] == [State.COMPLETED] * 3
    assert [(job.attempt, job.worker == other_id) for job in done] == [
        (2, True),
        (2, True),
        (1, False),
    ]
    assert yard.ask("SELECT job::text, attempt FROM public.effects ORDER BY job") == [
        (str(inside), 2),
        (str(in_thread), 2),
        (str(after), 1),
    ]
    assert [yard.job(job.id) for job in done] == done


JOBS = 400


@pytest.mark.long
def test_effects_in_transactions_happen_once_whenever_a_process_is_killed(
    postgres_yard: PostgresYard,
) -> None:
    """Case 14. Prevents an effect without its acknowledgement, and the other way round."""
    yard = postgres_yard
    yard.ask(EFFECTS)
    jobs = yard.enqueue_many("transact", JOBS)
    for number in (1, 2):
        worker = yard.worker(concurrency=20)
        enough = number * JOBS // 5
        until(lambda: sum(effects(yard).values()) > enough, "some effects")  # noqa: B023
        worker.kill()
    yard.worker()
    until(lambda: yard.states() == {State.COMPLETED: JOBS}, "the rest")

    assert effects(yard) == {str(job): 1 for job in jobs}
    runs = Counter(entry.job for entry in yard.ledger.entries("start"))
    assert set(runs) == {str(job) for job in jobs}
