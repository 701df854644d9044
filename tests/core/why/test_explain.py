"""Why a job does not run: every reason in words, with the command that changes it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.why.waiting_job import (
    ID,
    MINUTE,
    NOW,
    SECOND,
    a_job,
    a_worker,
    causes,
    only,
    reasons,
)
from windlass.core.jobs.ids import flow_id, member_id
from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Progress, Saga
from windlass.core.jobs.states import FINISHED, State
from windlass.core.policies.breaker_record import BreakerChange, BreakerState, BreakerStatus
from windlass.core.policies.pauses import Pauses
from windlass.core.why.explain import Scene, explain
from windlass.core.why.reason import Cause
from windlass.web.actions.remedies import for_reason

# -- scheduled -------------------------------------------------------------------------------------


def test_a_job_that_is_not_due_says_until_when() -> None:
    reason = only(a_job(state=State.SCHEDULED, due_at=NOW + 5 * MINUTE))
    assert reason.cause is Cause.NOT_DUE
    assert reason.message == "scheduled; due 2026-03-01 12:05:00Z, in 5m00s"
    assert reason.remedy == f"windlass jobs retry {ID}"
    assert reason.until == NOW + 5 * MINUTE


def test_a_retry_says_after_which_error_and_until_when() -> None:
    error = ErrorInfo(type="Refused", message="no")
    reason = only(
        a_job(state=State.SCHEDULED, due_at=NOW + MINUTE, attempt=2, failures=2, error=error)
    )
    assert reason.cause is Cause.RETRYING
    assert "attempt 2 failed" in reason.message
    assert reason.message.endswith("in 1m00s: Refused: no")
    assert reason.facts["error"] == "Refused: no"


def test_a_snoozed_job_is_not_taken_for_one_that_failed() -> None:
    history = (Attempt(number=1, worker="w", started_at=NOW, duration=SECOND, outcome="snoozed"),)
    job = a_job(state=State.SCHEDULED, due_at=NOW + MINUTE, history=history)
    assert only(job).cause is Cause.SNOOZED


def test_a_job_that_found_no_child_is_not_taken_for_one_that_is_retried() -> None:
    error = ErrorInfo(type="Refused", message="no")
    suspected, snoozed = (
        Attempt(number=2, worker="w", started_at=NOW, duration=SECOND, outcome=outcome)
        for outcome in ("suspected", "snoozed")
    )
    facts: dict[str, Any] = {"state": State.SCHEDULED, "due_at": NOW + SECOND, "error": error}
    job = a_job(history=(suspected,), reason="snoozed", attempt=3, failures=1, **facts)
    reason = reasons(job)[0]
    assert reason.cause is Cause.SNOOZED
    assert reason.message.startswith("no child process was free or could start")
    assert reason.remedy == "windlass worker MODULE:ATTR --isolated-processes N"
    by_handler = a_job(history=(snoozed,), reason="snoozed", **facts)
    assert only(by_handler).message.startswith("snoozed by its handler")


def test_a_job_that_waits_for_an_event_says_how_to_send_it_and_how_long_it_waits() -> None:
    job = a_job(state=State.SCHEDULED, waiting_for="event:paid now", due_at=NOW + MINUTE)
    reason = only(job)
    assert reason.cause is Cause.EVENT
    assert reason.message.endswith("at most until 2026-03-01 12:01:00Z, in 1m00s")
    assert reason.remedy == "windlass events send 'paid now'"
    forever = only(
        a_job(state=State.SCHEDULED, waiting_for="event:x", due_at=NOW.replace(year=9999))
    )
    assert "longest" not in forever.message
    assert forever.until is None


def test_a_job_of_a_flow_names_it() -> None:
    flow = flow_id(1, 1)
    member, undo = member_id(flow, 2), member_id(flow, 3)
    for job, waits_for in ((flow, ""), (member, ":2"), (undo, ":undo:0"), (member, ":last")):
        waiting_for = f"flow:{flow}{waits_for}"
        reason = only(a_job(id=job, state=State.SCHEDULED, waiting_for=waiting_for))
        assert (reason.cause, reason.remedy) == (Cause.FLOW, f"windlass flows show {flow}")
        assert reason.facts == {"flow": str(flow), "before": []}


def test_a_job_of_a_flow_names_those_that_could_run_before_it() -> None:
    flow = flow_id(1, 1)
    first = a_job(id=member_id(flow, 1))
    waiting = a_job(id=member_id(flow, 2), state=State.SCHEDULED, waiting_for=f"flow:{flow}:2")
    reason = only(waiting, before=[first])
    assert f"its flow {first.flow}: {first.id} (send, pending)" in reason.message
    assert reason.remedy == f"windlass why {first.id}"


def test_a_flow_that_died_of_its_undos_names_them_and_not_itself() -> None:
    """Its own job only sums up: run again before them, it would die of the same."""
    flow = flow_id(1, 1)
    own = a_job(id=flow, state=State.DEAD, reason="compensation failed: x")
    undo = a_job(id=member_id(flow, 3), state=State.DEAD)
    (reason,) = explain(own, Scene(now=NOW, before=[undo]))
    assert reason.remedy == f"windlass jobs retry {undo.id}"
    assert reason.facts["culprits"] == [str(undo.id)]
    (moot,) = explain(own, Scene(now=NOW))
    assert moot.remedy.endswith(f"windlass dead purge {flow}")


def test_why_names_any_other_signal_that_a_job_waits_for() -> None:
    reason = only(a_job(state=State.SCHEDULED, waiting_for="tea"))
    assert reason.cause is Cause.PARKED
    assert "'tea'" in reason.message


def test_why_of_a_scheduled_job_also_names_later_obstacles() -> None:
    paused = Pauses(queues=frozenset({"mail"}))
    job = a_job(state=State.SCHEDULED, due_at=NOW + MINUTE)
    assert causes(job, paused=paused, workers=[]) == [
        Cause.NOT_DUE,
        Cause.PAUSED,
        Cause.NO_WORKER,
    ]


# -- barred ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paused", "command"),
    [
        (Pauses(queues=frozenset({"mail"})), "windlass queues resume mail"),
        (Pauses(kinds=frozenset({"send"})), "windlass queues resume --kind send"),
        (Pauses(keys=frozenset({"a b"})), "windlass queues resume --key 'a b'"),
    ],
)
def test_a_pause_is_reported_with_the_command_that_ends_it(paused: Pauses, command: str) -> None:
    reason = only(a_job(key="a b"), paused=paused)
    assert (reason.cause, reason.remedy) == (Cause.PAUSED, command)


def test_a_kind_is_paused_under_its_aliases_too_and_shown_by_the_name_to_resume() -> None:
    paused = Pauses(queues=frozenset({"mail"}), kinds=frozenset({"post"}))
    queue, kind = reasons(a_job(), paused=paused, kind="post")
    assert (queue.facts, kind.facts) == ({"queue": "mail"}, {"kind": "post"})
    assert kind.remedy == "windlass queues resume --kind post"


def test_an_open_breaker_says_until_when_and_why() -> None:
    change = BreakerChange(
        at=NOW, old=BreakerState.CLOSED, new=BreakerState.OPEN, why="5 in a row", by="w1"
    )
    status = BreakerStatus(
        name="bank",
        state=BreakerState.OPEN,
        until=NOW + MINUTE,
        opened_at=NOW,
        history=(change,),
    )
    reason = only(a_job(), breakers=[status])
    assert reason.message == "breaker bank is open until 2026-03-01 12:01:00Z, in 1m00s: 5 in a row"
    assert reason.remedy == "windlass breakers probe bank"


def test_a_breaker_that_is_pinned_open_is_released_not_probed() -> None:
    pinned = BreakerChange(
        at=NOW, old=BreakerState.CLOSED, new=BreakerState.OPEN, why="pinned open by hand", by="ada"
    )
    status = BreakerStatus(
        name="bank", state=BreakerState.OPEN, forced="open", opened_at=NOW, history=(pinned,)
    )
    reason = only(a_job(), breakers=[status])
    assert reason.message == "breaker bank is pinned open by hand"
    assert reason.remedy == "windlass breakers auto bank"
    (button,) = for_reason(a_job(), reason)
    assert (button.label, button.path) == ("Release breaker bank", "/actions/release-breaker")


def test_a_closed_breaker_is_no_reason_and_a_half_open_one_lets_few_through() -> None:
    assert only(a_job(), breakers=[BreakerStatus(name="bank")]).cause is Cause.NEXT
    half = BreakerStatus(name="bank", state=BreakerState.HALF_OPEN)
    assert only(a_job(), breakers=[half]).cause is Cause.BREAKER
    assert only(a_job(), breakers=[half]).remedy == "windlass breakers show bank"


def test_a_breaker_whose_time_is_up_is_about_to_be_tried() -> None:
    late = BreakerStatus(name="bank", state=BreakerState.OPEN, until=NOW)
    told = only(a_job(), breakers=[late]).message
    assert told.startswith("breaker bank is open, and about to probe with a few jobs")


# -- running and finished --------------------------------------------------------------------------


def test_why_of_a_running_job_names_its_worker_start_progress_and_lease() -> None:
    job = a_job(
        state=State.RUNNING,
        worker="w1",
        attempt=2,
        started_at=NOW - MINUTE,
        progress=Progress(fraction=0.4, message="half way"),
    )
    reason = only(job)
    assert reason.cause is Cause.RUNNING
    assert reason.message == (
        "running on worker w1 since 2026-03-01 11:59:00Z, 1m00s ago (attempt 2); "
        "progress 40% half way; its lease lasts until 2026-03-01 12:00:20Z, in 20s"
    )
    assert reason.remedy == f"windlass jobs cancel {ID}"


def test_a_job_of_a_lost_worker_is_to_be_rescued_if_somebody_is_there() -> None:
    job = a_job(state=State.RUNNING, worker="gone", attempt=1)
    gone = a_worker("gone", alive=False)
    lost, _ = reasons(job, workers=[gone, a_worker()])
    assert lost.cause is Cause.LOST
    assert "rescue it" in lost.message
    alone, _ = reasons(job, workers=[gone])
    assert alone.remedy.startswith("windlass worker")


def test_a_running_job_that_was_asked_to_end_says_so() -> None:
    job = a_job(state=State.RUNNING, worker="w1", cancel_requested=True)
    assert causes(job) == [Cause.CANCELLING, Cause.RUNNING]


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_a_finished_job_says_what_became_of_it(state: State) -> None:
    error = ErrorInfo(type="Refused", message="no")
    job = a_job(
        state=state,
        worker="w1",
        started_at=NOW - MINUTE,
        finished_at=NOW - 30 * SECOND,
        reason="gave up",
        error=error if state is State.DEAD else None,
    )
    reason = only(job, workers=[])
    assert reason.cause.value == state.value
    assert "30s ago" in reason.message
    if state is State.DEAD:
        assert "gave up; Refused: no" in reason.message
        assert reason.remedy == f"windlass jobs retry {ID}"


def died_of_its_payload(**facts: Any) -> Job:
    message = "invalid payload for 'send': field 'n': Expected `str`, got `int`"
    error = ErrorInfo(type="windlass.PayloadInvalid", message=message)
    return a_job(state=State.DEAD, finished_at=NOW, reason=message, error=error, **facts)


def test_a_job_that_died_of_its_payload_says_so_once_and_how_to_correct_it() -> None:
    # A retry with the same payload would die the same way.
    reason = only(died_of_its_payload())
    assert reason.message.count("invalid payload for 'send'") == 1
    assert reason.remedy.endswith(f"correct the payload: windlass dead redrive {ID} --payload JSON")
    assert "jobs retry" not in reason.remedy


def test_an_invalid_payload_that_completed_steps_used_is_left_and_the_handler_changed() -> None:
    # A redrive with another payload is refused where completed steps used the present one.
    reason = only(died_of_its_payload(saga=Saga.READY))
    assert reason.remedy == f"let the handler accept the payload, then: windlass jobs retry {ID}"


def test_additional_facts_come_last() -> None:
    history = (Attempt(number=1, worker="w", started_at=NOW, duration=SECOND, outcome="suspected"),)
    error = ErrorInfo(type="Refused", message="no")
    job = a_job(
        history=history,
        saga=Saga.UNDOING,
        expires_at=NOW + MINUTE,
        failures=1,
        attempt=2,
        error=error,
    )
    next_, undoing, failed, *rest = reasons(job)
    assert (next_.cause, undoing.cause) == (Cause.NEXT, Cause.UNDOING)
    assert failed.message == "it failed before, in attempt 2: Refused: no"
    assert [each.cause for each in rest] == [Cause.SUSPECT, Cause.EXPIRES]
