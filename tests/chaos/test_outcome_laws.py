"""Laws about outcomes, fed with good and bad histories."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.histories import (
    OTHER,
    WORKER,
    accepted,
    completed,
    flow_member,
    history,
    job,
    run,
    strike,
)
from windlass.chaos.laws import outcomes
from windlass.chaos.laws.history import Change, Record
from windlass.chaos.laws.verdict import Finding

ONE, TWO = job(1), job(2)


def problems(finding: Finding) -> list[str]:
    return [violation.problem for violation in finding.violations]


def test_an_acknowledged_job_with_its_outcome_breaks_no_law() -> None:
    good = history(accepted(ONE), run(ONE, 1, 2), completed(ONE), watched=1)

    for law in (
        outcomes.acknowledged_have_outcomes,
        outcomes.outcomes_are_of_finished_runs,
        outcomes.outcomes_are_final,
        outcomes.live_workers_keep_their_jobs,
        outcomes.nothing_is_left_over,
    ):
        assert law(good).checked == 1
        assert problems(law(good)) == []


def test_an_acknowledged_job_that_the_store_does_not_have_is_lost() -> None:
    found = outcomes.acknowledged_have_outcomes(history(accepted(ONE)))

    assert problems(found) == ["was acknowledged, and the store has no such job"]


@pytest.mark.parametrize("state", ["pending", "running", "scheduled"])
def test_an_acknowledged_job_that_never_ends_is_accused(state: str) -> None:
    bad = history(accepted(ONE), Record(job=ONE, kind="plain", state=state))

    assert problems(outcomes.acknowledged_have_outcomes(bad))
    assert problems(outcomes.nothing_is_left_over(bad))


def test_a_cancelled_job_is_accused_because_nobody_cancels() -> None:
    bad = history(accepted(ONE), Record(job=ONE, kind="plain", state="cancelled"))

    assert problems(outcomes.acknowledged_have_outcomes(bad))


def test_a_dead_job_is_accused_unless_it_lost_three_runs() -> None:
    def found(**fields: Any) -> list[str]:
        dead = Record(job=ONE, kind="plain", state="dead", **fields)
        return problems(outcomes.acknowledged_have_outcomes(history(accepted(ONE), dead)))

    assert found()
    assert found(lost_runs=2)
    assert not found(lost_runs=3)
    assert not found(crashes=3)


def test_the_other_jobs_of_a_flow_may_follow_one_that_lost_three_runs() -> None:
    first, second = flow_member(1), flow_member(2)
    worn = Record(job=first, kind="member", state="dead", lost_runs=3)
    follows = Record(job=second, kind="member", state="cancelled")
    parts = (accepted(first, "member"), accepted(second, "member"))

    assert not problems(outcomes.acknowledged_have_outcomes(history(*parts, worn, follows)))
    alone = history(*parts, completed(first, "member"), follows)
    assert problems(outcomes.acknowledged_have_outcomes(alone))


@pytest.mark.parametrize(
    ("state", "reason", "is_wrong"),
    [
        ("dead", "permanent error; undone: draw", False),
        ("dead", "permanent error", True),
        ("completed", "", True),
    ],
)
def test_a_saga_must_be_dead_and_undone(state: str, reason: str, is_wrong: bool) -> None:
    record = Record(job=ONE, kind="saga", state=state, reason=reason)
    found = outcomes.acknowledged_have_outcomes(history(accepted(ONE, "saga"), record))

    assert bool(found.violations) == is_wrong


def test_a_completion_by_a_claim_that_was_over_has_passed_the_fence() -> None:
    """What a stale worker does when its token is not checked."""
    stale = completed(ONE, attempt=2, result_attempt=1, result_mark=f"{ONE}/1")
    bad = history(run(ONE, 1, 9), run(ONE, 5, 6, attempt=2, pid=OTHER), stale)

    (problem,) = problems(outcomes.outcomes_are_of_finished_runs(bad))
    assert "completed by attempt 1" in problem


def test_a_completion_without_a_run_that_returned_it_is_accused() -> None:
    bad = history(run(ONE, 1, 2), completed(ONE, result_mark="", result_attempt=None))

    assert problems(outcomes.outcomes_are_of_finished_runs(bad))


def test_a_completion_by_a_run_that_was_cut_off_is_accused() -> None:
    for lines in (run(ONE, 1), run(ONE, 1, 2, how="failed")):
        assert problems(outcomes.outcomes_are_of_finished_runs(history(lines, completed(ONE))))


def test_an_outcome_that_changes_is_accused() -> None:
    change = Change(job=ONE, before="completed in attempt 1", after="dead in attempt 2")

    assert problems(outcomes.outcomes_are_final(history(completed(ONE), changes=[change])))


def test_an_outcome_that_was_seen_only_in_the_end_is_no_evidence() -> None:
    past = history(completed(ONE), completed(TWO), watched=1)

    assert outcomes.outcomes_are_final(past).checked == 1


def test_two_records_of_one_job_are_accused() -> None:
    assert problems(outcomes.outcomes_are_final(history(completed(ONE), completed(ONE))))


def test_a_second_run_beside_one_on_an_untouched_worker_is_a_robbery() -> None:
    """What a hasty rescue does."""
    bad = history(run(ONE, 1, 5), run(ONE, 3, 4, attempt=2, pid=OTHER))

    assert problems(outcomes.live_workers_keep_their_jobs(bad))


def test_a_run_that_is_cut_off_on_an_untouched_worker_is_a_robbery() -> None:
    """What a hasty rescue does to a worker that obeys at once: no two runs overlap."""
    cut = run(ONE, 1, 2, how="cut")

    assert problems(outcomes.live_workers_keep_their_jobs(history(cut)))
    assert not problems(
        outcomes.live_workers_keep_their_jobs(history(cut, strike(1.5, 1.5, WORKER)))
    )
    failed = run(ONE, 1, 2, how="failed")
    assert not problems(outcomes.live_workers_keep_their_jobs(history(failed)))


@pytest.mark.parametrize(
    "excuse",
    [
        strike(2, 4, WORKER),
        strike(0, 0.5, WORKER),
        strike(2, 2.5, touches_all=True),
    ],
    ids=["stopped while it ran", "began right after a strike", "the network was away"],
)
def test_a_second_run_is_excused_where_a_fault_touched_the_first(excuse: object) -> None:
    fine = history(run(ONE, 1, 5), run(ONE, 3, 4, attempt=2, pid=OTHER), excuse)

    assert not problems(outcomes.live_workers_keep_their_jobs(fine))


def test_excused_runs_are_counted_apart() -> None:
    past = history(run(ONE, 3, 5), run(TWO, 3, 5, pid=OTHER), strike(2, 4, WORKER))
    found = outcomes.live_workers_keep_their_jobs(past)

    assert (found.checked, found.note) == (1, "runs excused by faults: 1")


def test_a_fault_on_another_process_is_no_excuse() -> None:
    bad = history(run(ONE, 1, 5), run(ONE, 3, 4, attempt=2, pid=OTHER), strike(2, 4, 999))

    assert problems(outcomes.live_workers_keep_their_jobs(bad))


def test_effects_must_be_one_for_a_completed_job_and_none_for_another() -> None:
    def found(effects: dict[str, list[int]], *records: Record) -> list[str]:
        return problems(outcomes.effects_happen_once(history(list(records), effects=effects)))

    done = completed(ONE, "transfer", attempt=2)
    dead = Record(job=TWO, kind="transfer", state="dead")
    assert not found({ONE: [2]}, done, dead)
    assert found({}, done)
    assert found({ONE: [1, 2]}, done)
    assert found({ONE: [1]}, done)
    assert found({ONE: [2], TWO: [1]}, done, dead)
    assert found({TWO: [1]})


def test_a_store_without_transactions_is_said_to_have_none() -> None:
    found = outcomes.effects_happen_once(history(store="redis"))

    assert "redis has no transactions" in found.impossible


def test_jobs_that_nobody_offered_are_accused_unless_a_schedule_made_them() -> None:
    assert problems(outcomes.nothing_is_left_over(history(completed(ONE))))
    tick = completed(ONE, "tick", schedule="chaos-tick", tick="2026-01-01T00:00:00+00:00")
    assert not problems(outcomes.nothing_is_left_over(history(tick)))


def test_leases_and_processes_that_outlive_the_drain_are_accused() -> None:
    assert problems(outcomes.nothing_is_left_over(history(living_workers=["w"])))
    assert problems(outcomes.nothing_is_left_over(history(unended=["fleet 1"])))
