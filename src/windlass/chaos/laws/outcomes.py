"""Owns the laws about outcomes: one for each job, from a run that finished, with its effects."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from windlass.chaos.laws.history import (
    CANCELLED,
    COMPLETED,
    DEAD,
    MAX_LOST_RUNS,
    History,
    Record,
)
from windlass.chaos.laws.verdict import Finding, Violation, excuses
from windlass.core.jobs.ids import flow_of

_SAGA, _TRANSFER = "saga", "transfer"
_MARKED = (
    *("plain", "threaded", "isolated", "flaky", "unique", "limited", "paced", "ordered"),
    *("member", "tick", "staged"),
)
"""Kinds whose result names the run that it comes from."""


def acknowledged_have_outcomes(history: History) -> Finding:
    """Judge that every acknowledged enqueue has the outcome that its kind must have."""
    wrong: list[Violation] = []
    worn_out = 0
    for job, entry in history.accepted.items():
        record = history.by_job.get(job)
        if record is None:
            wrong.append(_about(job, entry.name, "was acknowledged, and the store has no such job"))
        elif problem := _wrong_outcome(history, record):
            wrong.append(_about(job, entry.name, problem))
        elif record.state == DEAD and entry.name != _SAGA:
            worn_out += 1
    note = f"{worn_out} dead, since faults killed their process too often" if worn_out else ""
    return Finding(checked=len(history.accepted), violations=wrong, note=note)


def _wrong_outcome(history: History, record: Record) -> str:
    """Return why the outcome of a job is not the right one; empty: it is."""
    if not record.is_finished:
        return f"was acknowledged, and is {record.state} after the drain"
    if flow_of(UUID(record.job)) in history.worn_flows:
        return ""  # Its other jobs follow the one that is dead.
    if record.state == CANCELLED:
        return "is cancelled without a request"
    if record.kind == _SAGA:
        if record.state != DEAD or "undone" not in record.reason:
            return f"must be dead and undone, and is {record.state} ({record.reason})"
        return ""
    if record.state == DEAD and not record.is_worn_out:
        return f"is dead without having lost {MAX_LOST_RUNS} runs: {record.reason}"
    return ""


def outcomes_are_of_finished_runs(history: History) -> Finding:
    """Judge that a completed job has the result of a run that finished, and of its last claim."""
    wrong: list[Violation] = []
    checked = 0
    for record in history.records:
        if record.state != COMPLETED or record.kind not in _MARKED:
            continue
        checked += 1
        run = history.recorded_run(record.job)
        if run is None:
            problem = "is completed with a result that no run of it returned"
        elif not run.is_whole:
            problem = "is completed, but the run of its result did not come to its end"
        elif record.result_attempt != record.attempt:
            problem = (
                f"was claimed {record.attempt} times, and completed by attempt "
                f"{record.result_attempt}, whose claim was over"
            )
        else:
            continue
        wrong.append(_about(record.job, record.kind, problem))
    return Finding(checked=checked, violations=wrong)


def outcomes_are_final(history: History) -> Finding:
    """Judge that a recorded outcome never changes, and that there is one record for each job.

    An outcome that was seen before a replica had it is not recorded yet.
    """
    wrong = [
        Violation(subject=change.job, problem=f"was {change.before}, and later {change.after}")
        for change in history.changes
        if not history.may_be_forgotten(change.seen_at)
    ]
    for job, count in Counter(record.job for record in history.records).items():
        if count > 1:
            wrong.append(Violation(subject=job, problem=f"has {count} records in the store"))
    return Finding(checked=history.watched, violations=wrong)


def effects_happen_once(history: History) -> Finding:
    """Judge that a completed job has one effect in its transaction, and any other has none."""
    if history.effects is None:
        reason = f"{history.store} has no transactions that a handler could share with its job"
        return Finding(checked=0, impossible=reason)
    wrong: list[Violation] = []
    records = [record for record in history.records if record.kind == _TRANSFER]
    for record in records:
        attempts = history.effects.get(record.job, [])
        if len(attempts) != (record.state == COMPLETED):
            problem = f"is {record.state}, and has {len(attempts)} effects"
        elif attempts and attempts != [record.attempt]:
            problem = f"was claimed {record.attempt} times; its effect is of attempt {attempts[0]}"
        else:
            continue
        wrong.append(_about(record.job, record.kind, problem))
    unknown = history.effects.keys() - {record.job for record in records}
    wrong += [Violation(subject=job, problem="has an effect, and no record") for job in unknown]
    return Finding(checked=len(records), violations=wrong)


def live_workers_keep_their_jobs(history: History) -> Finding:
    """Judge that no run is cut off, or repeated beside it, on a worker that no fault touched."""
    wrong: list[Violation] = []
    checked = excused = 0
    for job, runs in history.runs_of.items():
        for run in runs:
            if run.ended is None or history.is_excused(run):
                excused += run.ended is not None
                continue
            checked += 1
            if any(run.began < each.began <= run.ended for each in history.touching(run.pid)):
                continue
            if run.is_cut:
                problem = (
                    f"was cut off in attempt {run.attempt}, and no fault had touched its worker"
                )
                wrong.append(_about(job, run.name, problem))
            for other in runs:
                if other.attempt > run.attempt and run.began <= other.began < run.ended:
                    problem = (
                        f"began attempt {other.attempt} while attempt {run.attempt} ran on a "
                        "worker that no fault had touched"
                    )
                    wrong.append(_about(job, run.name, problem))
    return Finding(checked=checked, violations=wrong, note=excuses(excused))


def nothing_is_left_over(history: History) -> Finding:
    """Judge that after the drain nothing waits, runs, holds a lease, or was never offered."""
    offered = {entry.job for entry in history.entries if entry.what in ("offered", "accepted")}
    wrong: list[Violation] = []
    for record in history.records:
        if not record.is_finished:
            wrong.append(_about(record.job, record.kind, f"is {record.state} after the drain"))
        if record.job not in offered and not record.schedule:
            wrong.append(_about(record.job, record.kind, "was never offered by a producer"))
    wrong += [
        Violation(subject=worker, problem="holds a lease after all workers have ended")
        for worker in history.living_workers
    ]
    wrong += [
        Violation(subject=name, problem="did not end after SIGTERM") for name in history.unended
    ]
    return Finding(checked=len(history.records), violations=wrong)


def _about(job: str, kind: str, problem: str) -> Violation:
    return Violation(subject=f"{kind} {job}", problem=problem)
