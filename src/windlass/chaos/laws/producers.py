"""Owns the law about killed producers: each of their calls was carried out whole, or not at all."""

from __future__ import annotations

from windlass.chaos.laws.history import History
from windlass.chaos.laws.verdict import Finding, Violation
from windlass.chaos.plan import FaultKind


def calls_of_killed_producers_are_whole(history: History) -> Finding:
    """Judge that no call of a killed producer was carried out in part, or acknowledged and lost.

    What was in flight may be there or not: its producer did not live to know.
    """
    calls = _calls_of_killed(history)
    wrong: list[Violation] = []
    in_flight: dict[int, tuple[str, ...]] = {}
    for (pid, _), jobs in calls.items():
        found = sum(job in history.by_job for job in jobs)
        acknowledged = sum(job in history.accepted for job in jobs)
        if found < max(len(jobs) if found else 0, acknowledged):
            problem = (
                f"{found} of the {len(jobs)} jobs of one call are there, and {acknowledged} were "
                "acknowledged"
            )
            wrong.append(Violation(subject=f"producer {pid}, {jobs[0]}", problem=problem))
        # The last call counts, and only if nothing of it was acknowledged.
        in_flight[pid] = () if acknowledged else jobs
    open_calls = [jobs for jobs in in_flight.values() if jobs]
    written = sum(jobs[0] in history.by_job for jobs in open_calls)
    note = (
        f"{len(in_flight)} killed, {len(open_calls)} of them during a call; {written} of these "
        "calls had been carried out"
    )
    jobs_checked = sum(map(len, calls.values()))
    return Finding(checked=jobs_checked, violations=wrong, note=note if calls else "")


def _calls_of_killed(history: History) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return the jobs of each call of the producers that were killed, in the order of the calls."""
    killed = {
        pid
        for strike in history.strikes
        if strike.fault == FaultKind.KILL_PRODUCER
        for pid in strike.pids
    }
    calls: dict[tuple[int, str], tuple[str, ...]] = {}
    for entry in history.entries:
        if entry.what == "offered" and entry.pid in killed:
            key = (entry.pid, entry.mark)
            calls[key] = (*calls.get(key, ()), entry.job)
    return calls
