"""A tick whose predecessor has not ended is skipped, waits or overlaps, as its schedule says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.core.schedules.ringing import HOUR, MINUTE, NOON, SECOND, begun, minutes, rung
from windlass.core.jobs.job import Attempt, Job
from windlass.core.jobs.states import State
from windlass.core.schedules.schedule import GRACE, holds_up

# -- overlap ---------------------------------------------------------------------------------------


def test_a_tick_is_skipped_while_the_one_before_runs() -> None:
    known = rung(begun(), MINUTE).record
    found = rung(known, 2 * MINUTE, running=True)
    assert (found.jobs, found.overlapped) == ((), (NOON + 2 * MINUTE,))
    assert (found.record.skipped, found.record.next) == (1, NOON + 3 * MINUTE)
    assert found.record.last_job == known.last_job
    assert minutes(rung(found.record, 3 * MINUTE)) == [3]


def test_a_tick_waits_for_the_one_before_and_is_looked_at_ever_less_often() -> None:
    known = rung(begun(every="1h", overlap="queue"), HOUR).record
    waiting = rung(known, 2 * HOUR, running=True).record
    assert (waiting.next, waiting.alarm) == (NOON + 2 * HOUR, NOON + 2 * HOUR + SECOND)
    later = rung(waiting, 2.5 * HOUR, running=True).record
    assert later.alarm == NOON + 2.5 * HOUR + 30 * SECOND
    found = rung(later, 2.6 * HOUR)
    assert (minutes(found), found.record.next) == ([120], NOON + 3 * HOUR)


def test_a_wait_for_the_one_before_is_no_lateness() -> None:
    """Prevents a tick that is to wait from being skipped, since it has waited for a minute."""
    known = rung(begun(every="1h", overlap="queue", catch_up="skip"), HOUR).record
    moment = 2 * HOUR
    while moment < 2 * HOUR + 10 * MINUTE:
        found = rung(known, moment, running=True)
        assert (found.jobs, found.late) == ((), 0)
        known = found.record
        assert known.alarm is not None
        moment = known.alarm - NOON
    assert minutes(rung(known, moment)) == [120]
    # But nobody was there for long after the time at which somebody should have looked.
    assert rung(known, moment + GRACE).late == 1


def test_a_tick_may_overlap_the_one_before() -> None:
    known = rung(begun(overlap="allow"), MINUTE).record
    assert minutes(rung(known, 2 * MINUTE, running=None)) == [2]


def last_job(state: State, *, attempt: int, outcomes: list[str], **fields: Any) -> Job:
    tries = tuple(
        Attempt(number=number, worker="w", started_at=NOON, duration=timedelta(0), outcome=outcome)
        for number, outcome in enumerate(outcomes, 1)
    )
    return Job(
        id=UUID(int=1), kind="k", queue="q", priority=0, key="", state=state, payload=b"{}",
        due_at=NOON, created_at=NOON, attempt=attempt, history=tries, **fields,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "skips", "queues"),
    [
        (last_job(State.PENDING, attempt=0, outcomes=[]), True, True),
        (last_job(State.RUNNING, attempt=2, outcomes=["failed"]), True, True),
        (last_job(State.SCHEDULED, attempt=1, outcomes=["failed"]), False, True),
        (last_job(State.SCHEDULED, attempt=1, outcomes=["timed out"]), False, True),
        (last_job(State.SCHEDULED, attempt=2, outcomes=["failed"]), True, True),
        (last_job(State.SCHEDULED, attempt=1, outcomes=["failed"], waiting_for="e"), True, True),
        (last_job(State.COMPLETED, attempt=2, outcomes=["failed"]), False, False),
        (last_job(State.DEAD, attempt=1, outcomes=["failed"]), False, False),
    ],
    ids=["waits", "runs", "failed", "timed out", "sleeps", "parked", "done", "dead"],
)
def test_an_unfinished_job_delays_the_next_tick_by_its_overlap(
    job: Job, skips: bool, queues: bool
) -> None:
    assert holds_up(job, "skip") is skips
    assert holds_up(job, "queue") is queues
