"""Laws about steps, sagas, flows and ticks, fed with good and bad histories."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.chaos.histories import (
    OTHER,
    accepted,
    completed,
    flow_member,
    history,
    job,
    run,
    step,
    strike,
)
from windlass.chaos.laws import workflows
from windlass.chaos.laws.history import Record, Ticking
from windlass.chaos.terms import SCHEDULE, STEPS

ONE = job(1)
DRAW, CHARGE, SEND = STEPS


def steps(*names_and_attempts: tuple[str, int], what: str = "step") -> list[object]:
    """Return runs of two attempts, at 1 and 11, with steps in them."""
    lines: list[object] = [
        *run(ONE, 1, kind="staged"),
        *run(ONE, 11, 19, kind="staged", attempt=2, pid=OTHER),
    ]
    for number, (name, attempt) in enumerate(names_and_attempts):
        at = (2 if attempt == 1 else 12) + number / 10
        lines.append(step(what, ONE, at, name, attempt))
    return lines


def test_a_step_that_was_cut_off_may_run_again() -> None:
    fine = history(steps((DRAW, 1), (CHARGE, 1), (CHARGE, 2), (SEND, 2)))

    found = workflows.recorded_steps_are_not_repeated(fine)
    assert (found.checked, found.violations) == (4, [])


def test_a_recorded_step_that_runs_again_is_accused() -> None:
    bad = history(steps((DRAW, 1), (CHARGE, 1), (DRAW, 2), (CHARGE, 2), (SEND, 2)))

    (violation,) = workflows.recorded_steps_are_not_repeated(bad).violations
    assert "ran its step draw again" in violation.problem


def test_steps_that_a_stale_attempt_runs_after_the_next_began_are_ignored() -> None:
    stale = step("step", ONE, 15.0, DRAW, attempt=1)
    fine = history(steps((DRAW, 1), (CHARGE, 1), (CHARGE, 2), (SEND, 2)), [stale])

    assert not workflows.recorded_steps_are_not_repeated(fine).violations


def saga(*undone: tuple[str, int]) -> list[object]:
    dead = Record(job=ONE, kind="saga", state="dead", reason="undone")
    done = steps((DRAW, 1), (CHARGE, 1), (SEND, 1))
    return [*done, *steps(*undone, what="undo")[3:], dead]


def test_a_saga_that_is_undone_in_reverse_is_not_accused() -> None:
    for undone in (
        ((SEND, 2), (CHARGE, 2), (DRAW, 2)),
        ((SEND, 1), (SEND, 2), (CHARGE, 2), (DRAW, 2)),
    ):
        found = workflows.sagas_are_undone_in_reverse(history(saga(*undone)))
        assert (found.checked, found.violations) == (1, [])


@pytest.mark.parametrize(
    "undone",
    [
        (),
        ((DRAW, 2), (CHARGE, 2), (SEND, 2)),
        ((SEND, 2), (CHARGE, 2)),
        ((SEND, 2), (CHARGE, 2), (DRAW, 2), (SEND, 2)),
        ((SEND, 2), (SEND, 2), (CHARGE, 2), (DRAW, 2)),
    ],
    ids=["not at all", "forwards", "in part", "again", "twice in one attempt"],
)
def test_a_saga_that_is_undone_otherwise_is_accused(undone: tuple[tuple[str, int], ...]) -> None:
    assert workflows.sagas_are_undone_in_reverse(history(saga(*undone))).violations


def test_an_undo_may_be_repeated_where_a_crashed_server_lost_its_claim() -> None:
    """Both claims have the same number; seen on PostgreSQL with the seed 38."""
    again = run(ONE, 13, 19, kind="saga", attempt=2, pid=99)
    undone = [
        step("undo", ONE, at, name, 2)
        for at, name in ((12.0, SEND), (14.0, SEND), (15.0, CHARGE), (16.0, DRAW))
    ]
    fine = history(saga(), again, undone)

    assert not workflows.sagas_are_undone_in_reverse(fine).violations


def flow(child_began: float, state: str = "completed") -> list[object]:
    own, parent, child = (flow_member(number) for number in range(3))
    return [
        *accepted(own, "flow"),
        *accepted(parent, "member"),
        *accepted(child, "member", parent),
        *run(parent, 1, 3, kind="member"),
        *run(child, child_began, child_began + 1, kind="member"),
        Record(job=own, kind="windlass.flow", state=state),
        completed(parent, "member"),
        completed(child, "member"),
    ]


def test_a_flow_whose_jobs_wait_for_their_parents_is_not_accused() -> None:
    found = workflows.flows_end_once(history(flow(3.5)))

    assert (found.checked, found.violations) == (1, [])


def test_a_job_that_begins_before_its_parent_has_finished_is_accused() -> None:
    assert workflows.flows_end_once(history(flow(2.5))).violations


def test_a_flow_that_does_not_complete_is_accused() -> None:
    assert workflows.flows_end_once(history(flow(3.5, "dead"))).violations


def ticks(*seconds: int) -> list[Record]:
    return [
        completed(job(n), "tick", schedule=SCHEDULE, tick=f"2026-01-01T00:00:{second:02}+00:00")
        for n, second in enumerate(seconds, 1)
    ]


def test_ticks_one_after_the_other_are_not_accused() -> None:
    found = workflows.ticks_come_once(history(ticks(1, 2, 3)))

    assert (found.checked, found.violations) == (3, [])


@pytest.mark.parametrize("seconds", [(1, 2, 2, 3), (1, 2, 4)], ids=["twice", "missing"])
def test_ticks_that_come_twice_or_not_at_all_are_accused(seconds: tuple[int, ...]) -> None:
    assert workflows.ticks_come_once(history(ticks(*seconds))).violations


FIRST = "2026-01-01T00:00:01+00:00"


def ticking(seconds: float) -> Ticking:
    return Ticking(first=FIRST, began=100.0, ended=100.0 + seconds)


def test_ticks_from_the_first_to_the_last_of_a_storm_are_not_accused() -> None:
    past = history(ticks(*range(1, 21)), ticking=ticking(21.0))

    assert not workflows.ticks_come_once(past).violations


@pytest.mark.parametrize(
    ("seconds", "storm"),
    [((), 21), ((1, 2), 600), (range(1, 15), 21), (range(2, 21), 21)],
    ids=["none", "two in ten minutes", "the last ones", "the first one"],
)
def test_ticks_that_are_missing_at_the_ends_of_a_storm_are_accused(
    seconds: Iterable[int], storm: float
) -> None:
    past = history(ticks(*seconds), ticking=ticking(storm))

    assert len(workflows.ticks_come_once(past).violations) == 1


@pytest.mark.parametrize(("step", "count"), [(-6.0, 0), (0.0, 1), (6.0, 1)])
def test_a_storm_is_as_long_for_ticks_as_the_clock_of_the_store_says(
    step: float, count: int
) -> None:
    past = history(ticks(*range(1, 15)), strike(110, 110, clock_step=step), ticking=ticking(21.0))

    assert len(workflows.ticks_come_once(past).violations) == count
