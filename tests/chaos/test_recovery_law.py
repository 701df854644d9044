"""The law about recovery: after each fault, interrupted jobs run again, and others start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.histories import LEASE, OTHER, WORKER, accepted, history, job, run, strike
from tests.support.worker_processes import until
from windlass.chaos.laws import recovery
from windlass.chaos.laws.history import Share, Strike
from windlass.chaos.observation import cpu_share
from windlass.chaos.observation.cpu_share import CpuShare

ONE, TWO = job(1), job(2)
PROMISED = 2 * LEASE
ALL: dict[str, Any] = {"touches_all": True}


def test_recovery_is_the_time_from_a_strike_to_the_next_run() -> None:
    past = history(run(ONE, 1), strike(2, 2, WORKER), run(ONE, 3.5, 4, attempt=2, pid=OTHER))

    (found,) = recovery.recoveries(past)
    assert (found.seconds, found.at) == (1.5, 3.5)


def test_a_job_that_a_strike_did_not_interrupt_needs_no_recovery() -> None:
    whole = history(run(ONE, 1, 3), strike(2, 2, WORKER))
    before = history(run(ONE, 1, 1.5, how="failed"), strike(2, 2, WORKER), run(ONE, 3, 4))

    assert recovery.recoveries(whole) == recovery.recoveries(before) == []


def test_a_strike_after_the_next_run_has_not_interrupted_the_one_before() -> None:
    """Prevents: a worker that was stopped is hit again when its job runs elsewhere already."""
    past = history(
        *(run(ONE, 1, 6, how="cut"), strike(2, 3, WORKER), strike(5.5, 5.5, WORKER)),
        run(ONE, 5, 7, attempt=2, pid=OTHER),
    )

    (found,) = recovery.recoveries(past)
    assert (found.strike, found.seconds) == (1, 2.0)


def test_a_broken_network_interrupts_the_runs_that_were_cut_off_by_it() -> None:
    past = history(
        *(run(ONE, 1, 4, how="cut"), run(TWO, 1, 2.5, kind="flaky", how="failed")),
        *(strike(2, 3, **ALL), run(ONE, 4.5, 5, attempt=2), run(TWO, 6, 7, attempt=2)),
    )

    (found,) = recovery.recoveries(past)
    assert (found.job, found.seconds) == (ONE, 0.5)


def test_the_first_start_is_that_of_any_job_while_one_was_waiting() -> None:
    past = history(
        *(strike(2, 3, **ALL), accepted(ONE, at=1.0), run(TWO, 5, 6, kind="tick")),
        run(ONE, 7, 8),
    )

    (found,) = recovery.first_starts(past)
    assert (found.strike, found.at, found.seconds) == (1, 5.0, 2.0)


def test_a_job_that_was_enqueued_later_was_not_waiting() -> None:
    past = history(strike(2, 3, **ALL), accepted(ONE, at=9.0), run(ONE, 9.5, 10))

    (found,) = recovery.first_starts(past)
    assert (found.seconds, found.since) == (6.5, 9.0)
    assert not recovery.work_goes_on(past).violations


def test_nothing_is_said_about_a_fault_that_hit_nothing_or_after_which_nothing_waited() -> None:
    nobody = history(strike(2, 3), accepted(ONE, at=1.0), run(ONE, 7, 8))
    nothing = history(strike(2, 3, **ALL), accepted(ONE, at=1.0), run(ONE, 1.5, 8))

    assert recovery.first_starts(nobody) == recovery.first_starts(nothing) == []


@pytest.mark.parametrize(("seconds", "is_wrong"), [(1.0, False), (5.5, False), (6.5, True)])
def test_recovery_beyond_two_leases_and_two_starts_is_accused(
    seconds: float, is_wrong: bool
) -> None:
    again = run(ONE, 2 + seconds, 99, attempt=2, pid=OTHER)
    cut_off = history(run(ONE, 1), strike(2, 2, WORKER), again, start_seconds=1.0)
    started = run(ONE, 2 + seconds, 99)
    waiting = history(accepted(ONE, at=1.0), strike(1, 2, **ALL), started, start_seconds=1.0)

    for past in (cut_off, waiting):
        found = recovery.work_goes_on(past)
        assert (found.checked, bool(found.violations)) == (1, is_wrong)
        assert f"promised {PROMISED:g} s" in found.note
        assert ("1 late" in found.note) == (seconds > PROMISED)


@pytest.mark.parametrize(("part", "is_wrong"), [(1.0, True), (0.5, True), (0.1, False)])
def test_time_without_a_cpu_is_not_held_against_a_recovery(part: float, is_wrong: bool) -> None:
    shares = [Share(began=0, ended=30, part=part), Share(began=30, ended=60, part=part)]
    again = run(ONE, 40, 99, attempt=2, pid=OTHER)
    past = history(run(ONE, 1), strike(2, 2, WORKER), again, shares=shares)

    found = recovery.work_goes_on(past)
    assert bool(found.violations) == is_wrong
    assert ("1 late, 1 of them excused" in found.note) != is_wrong


def test_another_fault_in_between_begins_the_time_anew() -> None:
    again = run(ONE, 12, 99, attempt=2, pid=OTHER)
    second = Strike(number=2, fault="stop-worker", began=4, ended=9, pids=(OTHER,))
    first = strike(2, 2, WORKER)

    assert recovery.work_goes_on(history(run(ONE, 1), first, again)).violations
    assert not recovery.work_goes_on(history(run(ONE, 1), first, second, again)).violations


def test_jobs_with_limits_also_wait_for_others() -> None:
    again = run(ONE, 60, 99, attempt=2, pid=OTHER, kind="paced")
    past = history(run(ONE, 1, kind="paced"), strike(2, 2, WORKER), again)

    assert not recovery.work_goes_on(past).violations


# -- waiting for a CPU -------------------------------------------------------------------------


def test_the_waiting_of_all_processes_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = {1: 0.25, 2: 0.5}
    monkeypatch.setattr(cpu_share, "_waited", waited.get)
    share = CpuShare(0.0)
    share.look([1, 2, 3], 1.0)
    waited[1] = 0.75
    share.look([1, 2, 3], 3.0)
    waited[2] = 9.0
    share.look([1, 2, 3], 4.0)

    assert share.shares == [
        Share(began=0.0, ended=1.0, part=0.25),
        Share(began=1.0, ended=3.0, part=0.75),
        Share(began=3.0, ended=4.0, part=0.0),
    ]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel counts nothing")
def test_the_kernel_says_how_long_a_process_waited() -> None:
    """Two processes that share one CPU wait for each other."""
    program = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    cpu = str(min(os.sched_getaffinity(0)))
    spinning = [subprocess.Popen([sys.executable, "-c", program, cpu]) for _ in range(2)]
    try:
        until(lambda: all((cpu_share._waited(each.pid) or 0) > 0.1 for each in spinning), "both")
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert cpu_share._waited(2**30) is None


def test_where_the_kernel_counts_nothing_the_load_average_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_share, "_waited", lambda _: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, part in ((0.5, 1.0), (20.0, 0.1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        share = CpuShare(0.0)
        share.look([1], 1.0)
        assert share.shares[-1].part == part
