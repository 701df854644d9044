"""Owns a flow that a test drives from end to end, in any order of its news."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windlass.core.jobs.ids import flow_id
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.workflows.flow_graph import (
    Chart,
    Edge,
    Node,
    OnFailure,
    built,
    held_wait_of,
    topic_of,
    undo_wait_of,
    wait_of,
)
from windlass.core.workflows.flow_progress import Advance, advance

FLOW = flow_id(1_700_000_000_000, 42)
COMPLETED, DEAD, CANCELLED = State.COMPLETED, State.DEAD, State.CANCELLED


def node(name: str, *after: Edge, undo: str = "") -> Node:
    return Node(name=name, kind=name, after=after, undo=undo)


def chart_of(*nodes: Node, last: Sequence[Node] = (), on_failure: OnFailure = "cancel") -> Chart:
    return Chart(built("x", nodes, last, on_failure=on_failure))


@dataclass
class Run:
    """A flow whose jobs end as a test says; it does what the reducer decides."""

    chart: Chart
    record: Json | None = None
    waiting: dict[int, str] = field(default_factory=dict)
    free: set[int] = field(default_factory=set)
    order: list[int] = field(default_factory=list)
    ended: bool = False
    revived: int = 0
    unheard: list[tuple[int, State]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for stage in self.chart.graph.stages:
            for number in range(stage.first, stage.end):
                waits_for = wait_of(FLOW, stage)
                if waits_for is None:
                    self.free.add(number)
                else:
                    self.waiting[number] = waits_for
        for stage, depth in zip(self.chart.jobs, self.chart.depths, strict=True):
            for number in range(stage.undo, stage.undo + stage.count) if stage.undo else ():
                self.waiting[number] = undo_wait_of(FLOW, depth)
        self.waiting[0] = topic_of(FLOW)

    def end(self, *ends: tuple[int, State]) -> Advance:
        """Let jobs end, and hear of it; what is cancelled for that is heard of later."""
        for number, _ in ends:
            self.free.discard(number)
            self.waiting.pop(number, None)
            self.order.append(number)
        return self.hear(ends)

    def is_over(self) -> bool:
        """Say whether the flow's own job was freed."""
        return self.ended

    def is_forgotten(self) -> bool:
        """Say whether there is no record any more."""
        return self.record is None

    def hear(self, ends: Iterable[tuple[int, State]]) -> Advance:
        step = advance(self.chart, FLOW, self.record, ends)
        self.record = step.record
        for number in step.cancelled or {}:
            if self.waiting.pop(number, None) is not None or number in self.free:
                self.free.discard(number)
                self.unheard.append((number, CANCELLED))
        for number in step.held:
            self.waiting[number] = held_wait_of(FLOW, number)
        for name in step.freed:
            freed = {number for number, waits_for in self.waiting.items() if waits_for == name}
            assert freed, f"nobody waits for {name}"
            self.free |= freed
            for number in freed:
                del self.waiting[number]
        if 0 in self.free:
            assert not self.ended, "the flow ends once"
            self.ended = True
            self.free.discard(0)
        self.revived += step.revived
        return step


def letters(run: Run) -> str:
    assert run.record is not None
    states: str = run.record["states"]
    return states
