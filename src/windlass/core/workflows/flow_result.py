"""Owns the result of a flow, once all of its jobs have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from windlass.core.records import Json
from windlass.core.workflows.flow_graph import Chart
from windlass.core.workflows.flow_progress import CANCELLED, COMPLETED, DEAD, WAITS

_MAX_NAMED_JOBS = 3


class FlowResult(Struct, frozen=True, kw_only=True):
    """The result of a flow: how many of its jobs ended in which way, and how many were undone."""

    completed: int = 0
    dead: int = 0
    cancelled: int = 0
    undone: int = 0


class Conclusion(Struct, frozen=True, kw_only=True):
    """How a flow ended, and why, if not as intended."""

    result: FlowResult
    ending: Literal["completed", "stopped", "undone", "undo_failed"]
    reason: str = ""


def concluded(chart: Chart, record: Json) -> Conclusion:
    """Sum up a flow all of whose jobs have ended."""
    states = record["states"].encode()
    behind = chart.size + 1
    undos = states[behind : behind + chart.undos]
    others = states[1:behind] + states[behind + chart.undos :]
    result = FlowResult(
        completed=others.count(COMPLETED),
        dead=others.count(DEAD),
        cancelled=others.count(CANCELLED),
        undone=undos.count(COMPLETED),
    )
    why: str = record["undoing"]
    if why and (failed := _not_undone(chart, states)):
        reason = f"compensation failed: {failed}; {result.undone} undone, {undos.count(WAITS)} left"
        return Conclusion(result=result, ending="undo_failed", reason=reason)
    if why:
        return Conclusion(result=result, ending="undone", reason=f"undone: {why}")
    bad = [
        number for number in _unexcused(chart) if states[number : number + 1] in (DEAD, CANCELLED)
    ]
    if not bad:
        return Conclusion(result=result, ending="completed")
    total = chart.size + len(chart.last)
    reason = f"{len(bad):,} of {total:,} jobs did not complete: {_named(chart, bad)}"
    return Conclusion(result=result, ending="stopped", reason=reason)


def _not_undone(chart: Chart, states: bytes) -> str:
    """Name the undos that failed or were cancelled although the job to undo completed."""
    dead, cancelled = [], []
    for stage in chart.undone:
        for undo, number in enumerate(range(stage.first, stage.end), start=stage.undo):
            if states[undo] in DEAD:
                dead.append(undo)
            elif states[undo] in CANCELLED and states[number] in COMPLETED:
                cancelled.append(undo)
    parts = [f"{_named(chart, dead)} dead"] if dead else []
    return ", ".join([*parts, *([f"{_named(chart, cancelled)} cancelled"] if cancelled else [])])


def _named(chart: Chart, numbers: Sequence[int]) -> str:
    shown = [f"{chart.name_of(number)} ({number})" for number in numbers[:_MAX_NAMED_JOBS]]
    return ", ".join([*shown, *(["…"] if len(numbers) > _MAX_NAMED_JOBS else [])])


def _unexcused(chart: Chart) -> list[int]:
    """Return the jobs that must complete: all but those whose every child continues regardless."""
    excuses_leaves = chart.graph.on_failure == "continue"
    jobs = [
        number
        for number in range(1, chart.size + 1)
        if chart.strict[number] or (not chart.children[number] and not excuses_leaves)
    ]
    return [*jobs, *(stage.first for stage in chart.last)]
