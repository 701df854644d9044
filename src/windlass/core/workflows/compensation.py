"""Owns the settling of jobs with undos: no end before compensation, and the right end after it.

The input is the transition of a job without undos; the result is the one to make instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.states import State
from windlass.core.values.text import storable
from windlass.core.workflows.step_log import (
    Over,
    Steps,
    UndoFailed,
    Undoing,
    in_brief,
    named,
    written,
)

if TYPE_CHECKING:
    from windlass.core.jobs.settle import Transition

UNDO_RETRIES = 10
"""How often an undo is retried whose own policy does not say."""
_REASON_LIMIT = 1_000


def undoing_first(job: Job, move: Transition) -> Transition:
    """Return the transition of a job that has something to undo: it does not end before that."""
    if job.saga is not Saga.READY or move.state not in (State.DEAD, State.CANCELLED):
        return move
    return replace(
        move,
        state=State.PENDING,
        due=None,
        steps=(*move.steps, written(_undoing(job, move))),
        saga=Saga.UNDOING,
        reason=_reason(f"undoing: {move.reason or move.state.value}"),
    )


def _undoing(job: Job, move: Transition) -> Undoing:
    return Undoing(
        state=move.state,
        reason=move.reason or "",
        error=move.error,
        crashes=job.crashes + move.crashes,
    )


def as_undo(job: Job, steps: Steps) -> Job:
    """Return a job charged only with the failures of its next undo."""
    before = 0 if steps.undoing is None else steps.undoing.crashes
    return replace(
        job,
        failures=steps.undo_failures(next(iter(steps.to_undo), "")),
        crashes=max(job.crashes - before, 0),
        max_retries=None,
    )


def after_undo(steps: Steps, move: Transition) -> Transition:
    """Return the transition of a job whose undo did not succeed: it still has to be undone."""
    name = next(iter(steps.to_undo), "")
    is_stuck = move.state is State.DEAD
    if move.failures or is_stuck:
        error = move.reason or "" if move.error is None else in_brief(move.error)
        failures = steps.undo_failures(name) + 1
        entry = UndoFailed(name=name, error=error, failures=failures, for_good=is_stuck)
        move = replace(move, steps=(*move.steps, written(entry)))
    if is_stuck:
        left = f"undone: {named(steps.undone)}; not undone: {named(steps.to_undo)}"
        why = move.reason if move.error is None else f"{move.reason}: {move.error}"
        reason = f"compensation failed: the undo of {name!r}: {storable(why or '', 500)}; {left}"
        move = replace(move, reason=_reason(reason))
    return replace(move, saga=Saga.UNDOING)


def all_undone(steps: Steps, move: Transition) -> Transition:
    """Return the end that a job would have had without undos."""
    end = steps.undoing or Undoing(state=State.DEAD)
    return replace(
        move,
        state=end.state,
        error=end.error,
        reason=_reason(f"{end.reason or end.state.value}; undone: {named(steps.undone)}"),
        steps=(*move.steps, written(Over())),
        saga=Saga.OVER,
    )


def _reason(text: str) -> str:
    return storable(text, _REASON_LIMIT)
