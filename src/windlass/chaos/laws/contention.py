"""Owns the laws about jobs that compete: unique keys, limits, order."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.chaos.laws.history import COMPLETED, History, Run
from windlass.chaos.laws.verdict import Finding, Violation, excuses
from windlass.chaos.ledger import Entry
from windlass.chaos.terms import CONCURRENCY, RATE

_RATE_WINDOW = 0.5
"""Seconds in which no more may begin than the rate allows in one second.

The ledger has the time of a write, which a busy machine delays: half of the window is for that.
"""


def unique_keys_are_held_by_one(history: History) -> Finding:
    """Judge that no job of a key was accepted while another of it had not finished.

    A job is alive until after the end of the run that completed it was written.
    """
    by_key: dict[str, list[Entry]] = {}
    for entry in history.accepted_of("unique"):
        by_key.setdefault(entry.mark, []).append(entry)
    wrong: list[Violation] = []
    for key, entries in by_key.items():
        open_until, holder = 0.0, ""
        for entry in sorted(entries, key=lambda each: each.at):
            if entry.at < open_until:
                problem = f"{entry.job} was accepted while {holder} had not finished"
                wrong.append(Violation(subject=key, problem=problem))
            run = history.recorded_run(entry.job)
            if run is not None and run.ended is not None and run.ended > open_until:
                open_until, holder = run.ended, entry.job
    return Finding(checked=sum(map(len, by_key.values())), violations=wrong)


def concurrency_is_never_exceeded(history: History) -> Finding:
    """Judge that no more jobs of the limited kind ran at a time than allowed."""
    runs, excused = _judged(history, "limited")
    events: list[tuple[float, int, Run]] = []
    for run in runs:
        until = history.held_until(run)
        if until > run.began:
            events += [(run.began, 1, run), (until, 0, run)]
    running: set[str] = set()
    wrong: list[Violation] = []
    most = 0
    for _, begins, run in sorted(events, key=lambda event: event[:2]):
        if not begins:
            running.discard(run.mark)
            continue
        running.add(run.mark)
        most = max(most, len(running))
        if len(running) > CONCURRENCY:
            problem = f"began as number {len(running)}, and {CONCURRENCY} may run at a time"
            wrong.append(Violation(subject=f"limited {run.job}", problem=problem))
    note = "; ".join(filter(None, (f"at most {most} at a time", excuses(excused))))
    return Finding(checked=len(runs), violations=wrong, note=note)


def rate_is_never_exceeded(history: History) -> Finding:
    """Judge that no more jobs of the paced kind began in a moment than the rate allows."""
    runs, excused = _judged(history, "paced")
    wrong: list[Violation] = []
    for first, last in zip(runs, runs[RATE:], strict=False):
        if last.began - first.began < _RATE_WINDOW:
            problem = (
                f"{RATE + 1} began within {last.began - first.began:.3f} s, and {RATE} may begin "
                "in a second"
            )
            wrong.append(Violation(subject=f"paced {last.job}", problem=problem))
    return Finding(checked=len(runs), violations=wrong, note=excuses(excused))


def _judged(history: History, kind: str) -> tuple[list[Run], int]:
    """Return the runs of a kind that began under a lease, and how many others there were."""
    runs = [run for run in history.runs if run.name == kind]
    judged = [run for run in runs if not history.is_excused(run)]
    return judged, len(runs) - len(judged)


def ordered_keys_keep_their_order(history: History) -> Finding:
    """Judge that no job of a key began before those ahead of it had finished.

    A failover may take back the outcome that it followed, if no replica had that yet.
    """
    wrong: list[Violation] = []
    accounts = dict(_accounts(history))
    for account, jobs in accounts.items():
        open_until, ahead = 0.0, ""
        for job in jobs:
            runs = history.runs_of.get(job)
            if runs and runs[0].began < open_until and not history.may_be_forgotten(runs[0].began):
                problem = f"{job} began before {ahead}, which was enqueued first, had finished"
                wrong.append(Violation(subject=account, problem=problem))
            done = history.recorded_run(job)
            if done is not None and done.ended is not None and done.ended > open_until:
                open_until, ahead = done.ended, job
    return Finding(checked=sum(map(len, accounts.values())), violations=wrong)


def _accounts(history: History) -> Iterator[tuple[str, list[str]]]:
    """Yield the jobs of each key in the order in which they were acknowledged."""
    places: dict[str, list[tuple[int, str]]] = {}
    for entry in history.accepted_of("ordered"):
        account, _, place = entry.mark.rpartition("#")
        places.setdefault(account, []).append((int(place), entry.job))
    for account, jobs in places.items():
        completed = [
            job
            for _, job in sorted(jobs)
            if (record := history.by_job.get(job)) is not None and record.state == COMPLETED
        ]
        yield account, completed
