"""What the laws say about a failover: only what a replica confirmed must have survived it."""

from __future__ import annotations

import pytest

from tests.chaos.histories import (
    LEASE,
    OTHER,
    accepted,
    completed,
    flow_member,
    history,
    job,
    run,
    step,
)
from windlass.chaos.laws import contention, outcomes, workflows
from windlass.chaos.laws.history import Change, Record, Strike

ONE, TWO = job(1), job(2)
OVER = Strike(number=1, fault="fail-over", began=10.0, ended=11.0, touches_all=True, forgets=True)
RESTART = Strike(number=1, fault="restart-server", began=10.0, ended=11.0, touches_all=True)


def changed(seen_at: float) -> Change:
    return Change(job=ONE, before="completed 1", after="completed 2", seen_at=seen_at)


def test_an_acknowledged_job_survives_a_failover() -> None:
    found = outcomes.acknowledged_have_outcomes(history(OVER, accepted(ONE, at=9.9)))

    assert len(found.violations) == 1


def test_an_outcome_that_was_seen_right_before_a_failover_may_change() -> None:
    past = history(OVER, completed(ONE), changes=[changed(9.9)])

    assert not outcomes.outcomes_are_final(past).violations


@pytest.mark.parametrize("seen_at", [10.0 - 2 * LEASE, 11.0 + 2 * LEASE])
def test_an_outcome_that_was_seen_long_before_or_after_a_failover_is_final(seen_at: float) -> None:
    past = history(OVER, completed(ONE), changes=[changed(seen_at)])

    assert len(outcomes.outcomes_are_final(past).violations) == 1


@pytest.mark.parametrize(("fault", "count"), [(OVER, 0), (RESTART, 1)])
def test_only_a_failover_may_take_back_the_outcome_that_a_run_followed(
    fault: Strike, count: int
) -> None:
    ordered = history(
        *(accepted(ONE, "ordered", "a#1"), accepted(TWO, "ordered", "a#2"), fault),
        *(run(TWO, 9.9, kind="ordered"), run(ONE, 12, 13, kind="ordered", pid=OTHER)),
        *(completed(ONE, "ordered"), completed(TWO, "ordered")),
    )
    child, parent = flow_member(2), flow_member(1)
    flow = history(
        *(accepted(child, "member", parent), fault),
        *(run(child, 9.9, kind="member"), run(parent, 12, 13, kind="member", pid=OTHER)),
        *(completed(parent, "member"), completed(child, "member")),
    )

    assert len(contention.ordered_keys_keep_their_order(ordered).violations) == count
    assert len(workflows.flows_end_once(flow).violations) == count


@pytest.mark.parametrize(("fault", "count"), [(OVER, 0), (RESTART, 1)])
def test_only_a_failover_may_lose_the_record_of_a_step(fault: Strike, count: int) -> None:
    lines = [step("step", ONE, 9.5, "draw"), step("step", ONE, 9.9, "charge")]
    lines.append(step("step", ONE, 12.0, "draw", attempt=2))
    undos = [step("undo", ONE, 13.0, "draw"), step("undo", ONE, 13.1, "charge")]
    saga = Record(job=ONE, kind="saga", state="dead", reason="undone")
    past = history(fault, lines, undos, saga)

    assert len(workflows.recorded_steps_are_not_repeated(past).violations) == count
    assert len(workflows.sagas_are_undone_in_reverse(past).violations) == count


def test_the_record_of_a_step_that_is_older_than_a_failover_is_kept() -> None:
    early = 10.0 - 2 * LEASE
    lines = [step("step", ONE, early - 1, "draw"), step("step", ONE, early, "charge")]
    past = history(OVER, lines, step("step", ONE, 12.0, "draw", attempt=2))

    assert len(workflows.recorded_steps_are_not_repeated(past).violations) == 1
