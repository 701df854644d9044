"""Owns the laws about steps, sagas, flows and schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from windlass.chaos.laws.history import COMPLETED, DEAD, History, Ticking
from windlass.chaos.laws.verdict import Finding, Violation
from windlass.chaos.ledger import Entry
from windlass.chaos.terms import INTERVAL, SCHEDULE, STEPS
from windlass.core.jobs.ids import flow_of

_END_INTERVALS = 3
"""Intervals that the last tick may be away from the end of the storm.

One before the first tick and one after the last are no missing ticks; one is for the difference of
the store's clock and ours.
"""


def recorded_steps_are_not_repeated(history: History) -> Finding:
    """Judge that a step never runs again once a later step has begun.

    The record of a step waits for no replica: a failover may lose it.
    """
    wrong: list[Violation] = []
    by_job = _valid_entries(history, "step")
    for job, entries in by_job.items():
        farthest = -1
        recorded_by: dict[int, float] = {}
        for entry in entries:
            place = STEPS.index(entry.name)
            recorded_by.setdefault(place - 1, entry.at)
            since = recorded_by.get(place, recorded_by.get(farthest - 1, 0.0))
            if place < farthest and not history.may_be_forgotten(since):
                problem = (
                    f"ran its step {entry.name} again, in attempt {entry.attempt}, after "
                    f"{STEPS[farthest]} had begun"
                )
                wrong.append(Violation(subject=job, problem=problem))
            farthest = max(farthest, place)
    return Finding(checked=sum(map(len, by_job.values())), violations=wrong)


def sagas_are_undone_in_reverse(history: History) -> Finding:
    """Judge that a dead saga has undone every step, the last first, and none again."""
    undone, done = _valid_entries(history, "undo"), _valid_entries(history, "step")
    sagas = [each for each in history.records if each.kind == "saga" and each.state == DEAD]
    wrong: list[Violation] = []
    for record in sagas:
        entries = [*undone.get(record.job, ()), *done.get(record.job, ())]
        if any(history.may_be_forgotten(entry.at) for entry in entries):
            continue  # A failover may have lost the record of a step, or of its undoing.
        names = [entry.name for entry in undone.get(record.job, ())]
        # A repetition right away is one whose first time was cut off before it was recorded.
        order = [name for n, name in enumerate(names) if n == 0 or names[n - 1] != name]
        begun = {entry.name for entry in done.get(record.job, ())}
        wanted = [step for step in reversed(STEPS) if step in begun]
        if order != wanted:
            problem = f"undid {', '.join(names) or 'nothing'}, and must undo {', '.join(wanted)}"
            wrong.append(Violation(subject=record.job, problem=problem))
        wrong += _repeated_undos(history, record.job, undone.get(record.job, ()))
    return Finding(checked=len(sagas), violations=wrong)


def _repeated_undos(history: History, job: str, entries: Sequence[Entry]) -> list[Violation]:
    """Return the undos that one run called twice: only the run after one that was cut off may.

    Not that one attempt called: a server that crashes may lose a claim, which is not flushed, and
    the next claim has the same number.
    """
    runs = history.runs_of.get(job, [])
    calls = Counter(
        (entry.name, entry.attempt, sum(run.began <= entry.at for run in runs)) for entry in entries
    )
    return [
        Violation(
            subject=job, problem=f"undid {name} {count} times in one run of attempt {attempt}"
        )
        for (name, attempt, _), count in calls.items()
        if count > 1
    ]


def flows_end_once(history: History) -> Finding:
    """Judge that a flow is completed with all of its jobs, none of which began before its parents.

    The ledger has, for each accepted job of a flow, the jobs that it waits for.
    """
    wrong: list[Violation] = []
    flows = history.accepted_of("flow")
    for entry in flows:
        record = history.by_job.get(entry.job)
        if flow_of(UUID(entry.job)) in history.worn_flows:
            continue
        if record is not None and record.is_finished and record.state != COMPLETED:
            problem = f"is {record.state} ({record.reason})"
            wrong.append(Violation(subject=f"flow {entry.job}", problem=problem))
    for entry in history.accepted_of("member"):
        runs = history.runs_of.get(entry.job, [])
        for parent in entry.mark.split():
            done = history.recorded_run(parent)
            if done is None or done.ended is None or not runs or runs[0].began >= done.ended:
                continue
            if history.may_be_forgotten(runs[0].began):
                continue  # The outcome that it followed was taken back by a failover.
            problem = f"began before its parent {parent} had finished"
            wrong.append(Violation(subject=f"member {entry.job}", problem=problem))
    return Finding(checked=len(flows), violations=wrong)


def ticks_come_once(history: History) -> Finding:
    """Judge that every tick of the schedule made one job, from the first of the storm to its last.

    The store's clock decides when a tick is due; the steps that chaos made of it are counted.
    """
    jobs = Counter(record.tick for record in history.records if record.schedule == SCHEDULE)
    wrong = [
        Violation(subject=tick, problem=f"made {count} jobs")
        for tick, count in jobs.items()
        if count > 1
    ]
    moments = sorted(datetime.fromisoformat(tick) for tick in jobs)
    for before, after in pairwise(moments):
        if (after - before).total_seconds() > 1.5 * INTERVAL:
            problem = f"came after {before.isoformat()}, and ticks between them are missing"
            wrong.append(Violation(subject=after.isoformat(), problem=problem))
    if history.ticking is not None:
        wrong += _missing_at_the_ends(history, history.ticking, moments)
    return Finding(checked=len(jobs), violations=wrong)


def _missing_at_the_ends(
    history: History, ticking: Ticking, moments: Sequence[datetime]
) -> Iterator[Violation]:
    """Yield a violation if the first tick made no job, and one if the last ones did not."""
    first = datetime.fromisoformat(ticking.first)
    if not moments or moments[0] > first:
        yield Violation(subject=first.isoformat(), problem="made no job, and is the first tick")
    steps = sum(strike.clock_step for strike in history.strikes)
    span = ticking.ended - ticking.began + steps
    last = first + timedelta(seconds=span - _END_INTERVALS * INTERVAL)
    if moments and moments[-1] < last:
        problem = f"was the last tick, and ticks were due until {last.isoformat()}"
        yield Violation(subject=moments[-1].isoformat(), problem=problem)


def _valid_entries(history: History, what: str) -> dict[str, list[Entry]]:
    """Return entries by job, without those that an attempt wrote after a later one had begun."""
    later: dict[str, list[tuple[int, float]]] = {}
    for run in history.runs:
        later.setdefault(run.job, []).append((run.attempt, run.began))
    found: dict[str, list[Entry]] = {}
    for entry in history.entries:
        if entry.what != what or entry.name not in STEPS:
            continue
        starts = later.get(entry.job, ())
        if not any(attempt > entry.attempt and began <= entry.at for attempt, began in starts):
            found.setdefault(entry.job, []).append(entry)
    return found
