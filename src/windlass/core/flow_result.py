"""Owns what came of a flow, once all of its jobs have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from windlass.core.flow import Chart
from windlass.core.flow_record import CANCELLED, COMPLETED, DEAD, WAITS
from windlass.core.job import Json

_SHOWN = 3


class FlowResult(Struct, frozen=True, kw_only=True):
    """What came of a flow: how many of its jobs ended in which way, and how many were undone."""

    completed: int = 0
    dead: int = 0
    cancelled: int = 0
    undone: int = 0


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """How a flow ended, and why, if not as it was meant to."""

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
    if why and DEAD in undos:
        failed = [behind + number for number, letter in enumerate(undos) if letter in DEAD]
        left = undos.count(WAITS)
        told = f"compensation failed: {_named(chart, failed)} dead; {result.undone} undone"
        return Conclusion(result=result, ending="undo_failed", reason=f"{told}, {left} left")
    if why:
        return Conclusion(result=result, ending="undone", reason=f"undone, since {why}")
    bad = [
        number for number in _unexcused(chart) if states[number : number + 1] in (DEAD, CANCELLED)
    ]
    if not bad:
        return Conclusion(result=result, ending="completed")
    total = chart.size + len(chart.last)
    told = f"{len(bad):,} of {total:,} jobs did not complete: {_named(chart, bad)}"
    return Conclusion(result=result, ending="stopped", reason=told)


def _named(chart: Chart, numbers: Sequence[int]) -> str:
    shown = [f"{chart.name_of(number)} ({number})" for number in numbers[:_SHOWN]]
    return ", ".join([*shown, *(["…"] if len(numbers) > _SHOWN else [])])


def _unexcused(chart: Chart) -> list[int]:
    """Return the jobs that must complete: all but those after which every child goes on."""
    excuses_leaves = chart.graph.on_failure == "go_on"
    jobs = [
        number
        for number in range(1, chart.size + 1)
        if chart.strict[number] or (not chart.children[number] and not excuses_leaves)
    ]
    return [*jobs, *(stage.first for stage in chart.last)]
