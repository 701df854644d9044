"""Owns the list of all laws, and the judgement of a history by them."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.chaos.laws import contention, outcomes, producers, recovery, workflows
from windlass.chaos.laws.history import History
from windlass.chaos.laws.verdict import Law, Standing, Verdict

LAWS = (
    Law(
        name="outcomes",
        promise="every acknowledged enqueue has its outcome",
        judge=outcomes.acknowledged_have_outcomes,
    ),
    Law(
        name="fence",
        promise="a job is completed by its last claim, with the result of a run that finished",
        judge=outcomes.outcomes_are_of_finished_runs,
    ),
    Law(
        name="finality",
        promise="a recorded outcome never changes",
        judge=outcomes.outcomes_are_final,
    ),
    Law(
        name="leases",
        promise="no job of a live worker is taken from it",
        judge=outcomes.live_workers_keep_their_jobs,
    ),
    Law(
        name="effects",
        promise="effects in ctx.transaction() happen exactly once",
        judge=outcomes.effects_happen_once,
    ),
    Law(
        name="producers",
        promise="a call of a killed producer is carried out whole, or not at all",
        judge=producers.calls_of_killed_producers_are_whole,
    ),
    Law(
        name="unique",
        promise="a unique key never has two jobs alive",
        judge=contention.unique_keys_are_held_by_one,
    ),
    Law(
        name="concurrency",
        promise="a concurrency limit is never exceeded",
        judge=contention.concurrency_is_never_exceeded,
    ),
    Law(
        name="rate",
        promise="a rate limit is never exceeded",
        judge=contention.rate_is_never_exceeded,
    ),
    Law(
        name="order",
        promise="ordered keys run in order",
        judge=contention.ordered_keys_keep_their_order,
    ),
    Law(
        name="steps",
        promise="a recorded step is not repeated",
        judge=workflows.recorded_steps_are_not_repeated,
    ),
    Law(
        name="sagas",
        promise="sagas are undone in reverse, each step once",
        judge=workflows.sagas_are_undone_in_reverse,
    ),
    Law(
        name="flows",
        promise="flows end once, children after their parents",
        judge=workflows.flows_end_once,
    ),
    Law(
        name="ticks",
        promise="every tick of a schedule makes one job, and none is missing",
        judge=workflows.ticks_come_once,
    ),
    Law(
        name="orphans",
        promise="nothing is left over after the drain",
        judge=outcomes.nothing_is_left_over,
    ),
    Law(
        name="recovery",
        promise="work goes on within two leases of a fault",
        judge=recovery.work_goes_on,
    ),
)

_ALWAYS_TRIED = frozenset({"outcomes", "fence", "ticks", "orphans"})
"""Laws that have evidence in every run, however short it is; others need certain jobs or faults."""


def check(history: History) -> list[Verdict]:
    """Judge a history by every law."""
    return [law.verdict(history) for law in LAWS]


def failures(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the laws that were broken, and those without the evidence that every run must have."""
    return [verdict.law for verdict in verdicts if _is_broken(verdict) or is_unproved(verdict)]


def is_unproved(verdict: Verdict) -> bool:
    """Return whether a law lacks the evidence that every run must have."""
    return verdict.standing is Standing.NOT_TRIED and verdict.law in _ALWAYS_TRIED


def _is_broken(verdict: Verdict) -> bool:
    return verdict.standing is Standing.BROKEN
