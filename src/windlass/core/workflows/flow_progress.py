"""Owns the progress of a flow: which of its jobs have ended, and which run next.

The record of a flow has a letter for each job, by its number, and no counters: an end that is
reported twice, or in another order, leads to the same record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.workflows.flow_graph import (
    Chart,
    Edge,
    Stage,
    held_wait_of,
    topic_of,
    undo_wait_of,
    wait_of,
)

WAITS, FREE, COMPLETED, DEAD, CANCELLED, CONDEMNED = b".", b"f", b"c", b"d", b"x", b"k"
"""Waiting for others; free to run, or running; how it ended; and about to be cancelled."""
HELD = b"h"
"""An undo that is due, but its job is dead: that may be redriven, and complete."""
CANCELLED_AT_ONCE = 500
"""How many jobs one change cancels, or holds, so that none is slow; the next does the rest."""
_LETTERS = {State.COMPLETED: COMPLETED, State.DEAD: DEAD, State.CANCELLED: CANCELLED}


class Advance(Struct, frozen=True, kw_only=True):
    """The consequences of ended jobs: the record after them, and the changes to make."""

    record: Json | None
    """None: the flow is over, and its record is deleted."""
    freed: Sequence[str] = ()
    """Keys whose waiting jobs are unparked."""
    cancelled: Mapping[int, str] | None = None
    """Jobs to cancel, and why."""
    held: Sequence[int] = ()
    """Undos that are parked on their own, whatever else is freed."""
    more: bool = False
    """Whether more jobs are to be cancelled, or held, by the next change."""
    revived: bool = False
    """Whether the flow's own job, which is dead, has a new result."""


def begun(chart: Chart) -> Json:
    """Return the record of a flow none of whose jobs has ended."""
    states = bytearray(WAITS * (chart.total + 1))
    for stage in chart.jobs:
        if not stage.after:
            states[stage.first : stage.end] = FREE * stage.count
    return {"states": states.decode(), "undoing": "", "condemned": []}


def is_dead(record: Json) -> bool:
    """Return whether the flow's own job is dead: the record is kept, since it may be redriven."""
    return bool(record["states"].startswith(DEAD.decode()))


def advance(
    chart: Chart, flow: UUID, record: Json | None, ended: Iterable[tuple[int, State]]
) -> Advance:
    """Decide the consequences of ended jobs of a flow, which may have been reported before."""
    course = _Course(chart, flow, begun(chart) if record is None else record)
    for number, state in ended:
        course.mark(number, state)
    own = course.states[:1]
    if own == CANCELLED:
        course.give_up(1, chart.total + 1, "its flow was cancelled", WAITS + FREE + HELD)
    elif own != COMPLETED:
        course.advance()
    course.cancel_some()
    if own not in (CANCELLED, COMPLETED):
        course.end()
    is_over = own == COMPLETED or (own == CANCELLED and not course.condemned)
    return Advance(
        record=None if is_over else course.record,
        freed=course.freed,
        cancelled=course.cancelled,
        held=course.held,
        more=(bool(course.condemned) or course.is_holding) and not is_over,
        revived=course.revived,
    )


class _Course:
    """A flow during one change: the letters of its states change, and the effects are collected."""

    def __init__(self, chart: Chart, flow: UUID, record: Json) -> None:
        self._chart = chart
        self._flow = flow
        self.states = bytearray(record["states"], "ascii")
        self._undoing: str = record["undoing"]
        self._changed: set[int] = set()
        self._failed_leaves: list[int] = []
        self.condemned: list[list[Any]] = [list(span) for span in record["condemned"]]
        """Spans of numbers, and the reason to cancel the condemned jobs in them."""
        self.freed: list[str] = []
        self.cancelled: dict[int, str] = {}
        self.held: list[int] = []
        self.is_holding = False
        """Whether there are more to hold than one change may."""
        self.revived = False

    @property
    def record(self) -> Json:
        return {
            "states": self.states.decode(),
            "undoing": self._undoing,
            "condemned": self.condemned,
        }

    def mark(self, number: int, state: State) -> None:
        # An end is final, except for a dead job that was redriven.
        letter = _LETTERS.get(state)
        if letter is None or number > self._chart.total:
            return
        if self.states[number : number + 1] in (WAITS, FREE, HELD, DEAD, CONDEMNED):
            self.states[number : number + 1] = letter
            if 1 <= number <= self._chart.size:
                self._changed.add(self._chart.stage_of(number))
                self._mind_leaf(number, letter)

    def _mind_leaf(self, number: int, letter: bytes) -> None:
        # The failure of a job without children compensates the flow where the policy says so.
        grave = self._chart.graph.on_failure == "compensate" and letter in (DEAD, CANCELLED)
        if grave and not self._chart.children[number]:
            self._failed_leaves.append(number)

    def advance(self) -> None:
        """Free the jobs whose parents have ended, and end the flow when all jobs have."""
        for leaf in self._failed_leaves:
            if self._has_failed(Edge(leaf, leaf)):  # Unless it was redriven and completed since.
                self._compensate(self._why(Edge(leaf, leaf)))
        while self._changed:
            changed, self._changed = self._changed, set()
            for stage in self._chart.heirs(changed):
                self._judge(stage)
        if not self._is_any(WAITS + FREE, 1, self._chart.size + 1):
            self._undo_or_not()

    def end(self) -> None:
        """Free the final jobs when all others are settled, and then end the flow."""
        chart = self._chart
        undos, last = chart.size + 1, chart.size + chart.undos + 1
        # Undos that still wait are behind an undo that is dead.
        are_undos_over = not self._is_any(FREE, undos, last)
        is_busy = self.condemned or self.is_holding
        if is_busy or self._is_any(WAITS + FREE, 1, undos) or not are_undos_over:
            return
        for stage in chart.last:
            self._free(stage)
        if not self._is_any(WAITS + FREE, last, chart.total + 1):
            self._free_own(is_held=self._is_any(DEAD, undos, last))

    def give_up(self, first: int, end: int, why: str, among: bytes = WAITS) -> None:
        """Condemn those of the given jobs that are in one of the given states."""
        part = self.states[first:end]
        after = part.translate(bytes.maketrans(among, CONDEMNED * len(among)))
        if after == part:
            return
        self.states[first:end] = after
        if self.condemned and self.condemned[-1][1:] == [first, why]:
            self.condemned[-1][1] = end
        else:
            self.condemned.append([first, end, why])

    def cancel_some(self) -> None:
        """Cancel condemned jobs, as many as one change may."""
        while self.condemned:
            first, end, why = self.condemned[0]
            while (number := self.states.find(CONDEMNED, first, end)) >= 0:
                if len(self.cancelled) == CANCELLED_AT_ONCE:
                    self.condemned[0][0] = number
                    return
                self.states[number : number + 1] = CANCELLED
                self.cancelled[number] = why
                first = number + 1
            del self.condemned[0]

    # -- jobs whose parents have ended ---------------------------------------------------------

    def _judge(self, stage: Stage) -> None:
        """Free or cancel the jobs of a stage once enough of their parents have ended."""
        if not self._is_any(WAITS, stage.first, stage.end):
            return
        failed = [edge for edge in stage.after if self._has_failed(edge)]
        bad = [edge for edge in failed if edge.on_failure != "continue"]
        if bad:
            self._stop(stage, bad)
        elif not any(self._is_any(WAITS + FREE, edge.first, edge.last + 1) for edge in stage.after):
            self._free(stage)

    def _has_failed(self, edge: Edge) -> bool:
        return self._is_any(DEAD + CANCELLED + CONDEMNED, edge.first, edge.last + 1)

    def _stop(self, stage: Stage, bad: Sequence[Edge]) -> None:
        grave = next((edge for edge in bad if edge.on_failure == "compensate"), None)
        why = self._why(grave or bad[0])
        self.give_up(stage.first, stage.end, why)
        self._changed.add(self._chart.stage_of(stage.first))
        if grave is not None:
            self._compensate(why)

    def _compensate(self, why: str) -> None:
        # Jobs that are free to run end first and are undone afterwards; nothing else begins.
        if not self._undoing:
            self._undoing = why
            self.give_up(1, self._chart.size + 1, f"the flow is being undone: {why}")

    def _why(self, edge: Edge) -> str:
        first, end = edge.first, edge.last + 1
        found = [self.states.find(letter, first, end) for letter in (DEAD, CANCELLED, CONDEMNED)]
        number = next((each for each in found if each >= 0), first)
        state = "dead" if number == found[0] else "cancelled"
        return f"{self._chart.name_of(number)!r} (job {number} of the flow) is {state}"

    def _free(self, stage: Stage) -> None:
        waits_for = wait_of(self._flow, stage)
        has_waited = self._replace(WAITS, FREE, stage.first, stage.end)
        if has_waited and waits_for is not None and waits_for not in self.freed:
            self.freed.append(waits_for)

    # -- compensation and the end --------------------------------------------------------------

    def _undo_or_not(self) -> None:
        """Free the undos of the deepest stage that is left, unless some are still running."""
        begin, end = self._chart.size + 1, self._chart.size + self._chart.undos + 1
        if not self._undoing:
            self.give_up(begin, end, "nothing to undo")
            return
        self._give_up_undos_of(CANCELLED + CONDEMNED)
        if self.states.count(CONDEMNED) > CANCELLED_AT_ONCE:
            return  # A job that is freed before it is cancelled would run.
        if not self._is_any(FREE + DEAD, begin, end):
            self._undo_deepest()
        if not self.is_holding and not self._is_any(FREE, begin, end):
            self._give_up_undos_of(DEAD)

    def _give_up_undos_of(self, letters: bytes) -> None:
        for stage in self._chart.undone:
            for undo in self._undos(stage, letters, WAITS + HELD):
                self.give_up(undo, undo + 1, "the job it would undo did not complete", WAITS + HELD)

    def _undo_deepest(self) -> None:
        flow, undone = self._flow, self._chart.undone
        left = [each for each in undone if self._undos(each, COMPLETED, WAITS + HELD)]
        deepest = max((self._depth(stage) for stage in left), default=0)
        # All undos of that depth wait for the same key, also those that must not run.
        beside = [stage for stage in undone if self._depth(stage) == deepest] if left else []
        if not self._hold([undo for each in beside for undo in self._undos(each, DEAD, WAITS)]):
            return
        waits: dict[str, None] = {}
        for stage in beside:
            for undo in self._undos(stage, COMPLETED, WAITS + HELD):
                is_held = self.states[undo] in HELD
                wait = held_wait_of(flow, undo) if is_held else undo_wait_of(flow, deepest)
                waits[wait] = None
                self.states[undo : undo + 1] = FREE
        self.freed += waits

    def _hold(self, undos: Sequence[int]) -> bool:
        """Put undos on hold, as many as one change may; return whether that was all."""
        for undo in undos[:CANCELLED_AT_ONCE]:
            self.states[undo : undo + 1] = HELD
            self.held.append(undo)
        self.is_holding = len(undos) > CANCELLED_AT_ONCE
        return not self.is_holding

    def _undos(self, stage: Stage, of: bytes, among: bytes) -> list[int]:
        return [
            undo
            for undo, number in enumerate(range(stage.first, stage.end), start=stage.undo)
            if self.states[number] in of and self.states[undo] in among
        ]

    def _depth(self, stage: Stage) -> int:
        return self._chart.depths[self._chart.stage_of(stage.first)]

    def _free_own(self, *, is_held: bool) -> None:
        own = self.states[:1]
        if own == WAITS:
            self.freed.append(topic_of(self._flow))
            self.states[:1] = FREE
        elif own == DEAD and self._undoing and not is_held:
            self.revived = True
            self.states[:1] = FREE

    # -- letters -------------------------------------------------------------------------------

    def _is_any(self, letters: bytes, first: int, end: int) -> bool:
        return any(self.states.find(letter, first, end) >= 0 for letter in letters)

    def _replace(self, before: bytes, after: bytes, first: int, end: int) -> bool:
        part = self.states[first:end]
        self.states[first:end] = part.replace(before, after)
        return before in part
