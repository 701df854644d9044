"""Laws about unique keys, limits and order, fed with good and bad histories."""

from __future__ import annotations

from tests.chaos.histories import (
    OTHER,
    WORKER,
    accepted,
    completed,
    history,
    job,
    run,
    strike,
)
from windlass.chaos.laws import contention
from windlass.chaos.terms import CONCURRENCY, RATE

ONE, TWO = job(1), job(2)


def unique_pair(second_at: float) -> list[object]:
    """Return two jobs of one key, the first of which runs from 1 to 3."""
    return [
        *accepted(ONE, "unique", "key-1", at=0.5),
        *run(ONE, 1, 3, kind="unique"),
        completed(ONE, "unique"),
        *accepted(TWO, "unique", "key-1", at=second_at),
        *run(TWO, second_at + 1, second_at + 2, kind="unique"),
        completed(TWO, "unique"),
    ]


def test_a_unique_key_may_be_used_again_after_its_job_has_finished() -> None:
    found = contention.unique_keys_are_held_by_one(history(unique_pair(3.5)))

    assert (found.checked, found.violations) == (2, [])


def test_a_unique_key_freed_while_its_job_runs_is_accused() -> None:
    assert contention.unique_keys_are_held_by_one(history(unique_pair(2.0))).violations


def test_other_keys_do_not_matter() -> None:
    first = unique_pair(2.0)
    other = [*accepted(job(3), "unique", "key-2", at=2.0)]

    found = contention.unique_keys_are_held_by_one(history(first, other))
    assert [each.subject for each in found.violations] == ["key-1"]


def limited(
    count: int, began: float = 1.0, ended: float | None = 2.0, pid: int = WORKER
) -> list[object]:
    return [
        line
        for number in range(count)
        for line in run(job(number + 1), began + number / 100, ended, kind="limited", pid=pid)
    ]


def test_as_many_as_the_limit_allows_may_run_at_a_time() -> None:
    found = contention.concurrency_is_never_exceeded(history(limited(CONCURRENCY)))

    assert (found.checked, found.violations) == (CONCURRENCY, [])
    assert found.note == f"at most {CONCURRENCY} at a time"


def test_one_more_than_the_limit_allows_is_accused() -> None:
    found = contention.concurrency_is_never_exceeded(history(limited(CONCURRENCY + 1)))

    assert len(found.violations) == 1


def test_one_that_begins_when_another_has_ended_is_allowed() -> None:
    next_one = run(job(99), 2.5, 3, kind="limited")

    assert not contention.concurrency_is_never_exceeded(
        history(limited(CONCURRENCY), next_one)
    ).violations


def test_runs_of_a_killed_process_count_until_its_death() -> None:
    killed = limited(CONCURRENCY, ended=None)
    death = strike(1.5, 1.5, WORKER)
    after = run(job(99), 5, 6, kind="limited", pid=OTHER)
    before = run(job(98), 1.2, 6, kind="limited", pid=OTHER)

    fine = history(killed, death, after)
    assert not contention.concurrency_is_never_exceeded(fine).violations
    assert contention.concurrency_is_never_exceeded(history(killed, death, before)).violations


def test_runs_of_a_stopped_process_do_not_count_from_the_stop_on() -> None:
    stopped = limited(CONCURRENCY, ended=9.0)
    stop = strike(1.5, 8.0, WORKER)
    elsewhere = run(job(99), 6, 7, kind="limited", pid=OTHER)

    fine = history(stopped, stop, elsewhere)
    assert not contention.concurrency_is_never_exceeded(fine).violations


def test_a_rate_that_is_kept_is_not_accused_though_writes_are_late() -> None:
    starts = [run(job(n + 1), 1.0 + n / RATE, 9, kind="paced") for n in range(3 * RATE)]
    late = [run(job(n + 1), max(1.0 + n / RATE, 1.3), 9, kind="paced") for n in range(3 * RATE)]

    assert not contention.rate_is_never_exceeded(history(*starts)).violations
    assert not contention.rate_is_never_exceeded(history(*late)).violations


def test_twice_the_rate_is_accused() -> None:
    starts = [run(job(n + 1), 1.0 + n / RATE / 4, 9, kind="paced") for n in range(3 * RATE)]

    assert contention.rate_is_never_exceeded(history(*starts)).violations


def test_runs_that_limits_do_not_judge_are_counted_apart() -> None:
    past = history(
        limited(CONCURRENCY, began=3.0, ended=4.0),
        run(job(8), 9, 10, kind="limited"),
        run(job(9), 3.5, 4, kind="paced"),
        strike(2, 3.2, WORKER),
    )

    busy = contention.concurrency_is_never_exceeded(past)
    assert (busy.checked, busy.note) == (
        1,
        f"at most 1 at a time; runs excused by faults: {CONCURRENCY}",
    )
    assert contention.rate_is_never_exceeded(past).note == "runs excused by faults: 1"


def ordered(first_ended: float, second_began: float) -> list[object]:
    return [
        *accepted(ONE, "ordered", "acme#1"),
        *accepted(TWO, "ordered", "acme#2"),
        *run(ONE, 1, 1.5, kind="ordered", how="failed"),
        *run(ONE, 2, first_ended, kind="ordered", attempt=2),
        *run(TWO, second_began, second_began + 1, kind="ordered"),
        completed(ONE, "ordered", attempt=2),
        completed(TWO, "ordered"),
    ]


def test_the_next_of_a_key_may_begin_after_the_retry_of_the_one_ahead() -> None:
    found = contention.ordered_keys_keep_their_order(history(ordered(3.0, 3.5)))

    assert (found.checked, found.violations) == (2, [])


def test_the_next_of_a_key_that_overtakes_a_retry_is_accused() -> None:
    assert contention.ordered_keys_keep_their_order(history(ordered(3.0, 1.8))).violations
