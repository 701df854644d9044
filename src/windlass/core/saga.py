"""Owns what becomes of a job that has something to undo: no end without that, and which end then.

It goes by the transition that a job without undos would make, and says what is made instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from windlass.core.job import Job, Saga
from windlass.core.states import State
from windlass.core.steps import Over, Steps, UndoFailed, Undoing, in_brief, told, written
from windlass.core.text import storable

if TYPE_CHECKING:
    from windlass.core.settle import Transition

UNDO_RETRIES = 10
"""How often an undo is tried again whose own policy does not say."""
_REASON_LIMIT = 1_000


def undoing_first(job: Job, move: Transition) -> Transition:
    """Return what becomes of a job that has something to undo: it does not end before that."""
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
    """Return a job charged with what its next undo is to be charged with, and with nothing else."""
    before = 0 if steps.undoing is None else steps.undoing.crashes
    return replace(
        job,
        failures=steps.undo_failures(next(iter(steps.to_undo), "")),
        crashes=max(job.crashes - before, 0),
        max_retries=None,
    )


def after_undo(steps: Steps, move: Transition) -> Transition:
    """Return what becomes of a job whose undo did not succeed: it stays a job to be undone."""
    name = next(iter(steps.to_undo), "")
    is_stuck = move.state is State.DEAD
    if move.failures or is_stuck:
        error = move.reason or "" if move.error is None else in_brief(move.error)
        failures = steps.undo_failures(name) + 1
        entry = UndoFailed(name=name, error=error, failures=failures, for_good=is_stuck)
        move = replace(move, steps=(*move.steps, written(entry)))
    if is_stuck:
        left = f"undone: {told(steps.undone)}; not undone: {told(steps.to_undo)}"
        why = move.reason if move.error is None else f"{move.reason}: {move.error}"
        reason = f"compensation failed: the undo of {name!r}: {storable(why or '', 500)}; {left}"
        move = replace(move, reason=_reason(reason))
    return replace(move, saga=Saga.UNDOING)


def all_undone(steps: Steps, move: Transition) -> Transition:
    """Return the end that a job would have had if there had been nothing to undo."""
    end = steps.undoing or Undoing(state=State.DEAD)
    return replace(
        move,
        state=end.state,
        error=end.error,
        reason=_reason(f"{end.reason or end.state.value}; undone: {told(steps.undone)}"),
        steps=(*move.steps, written(Over())),
        saga=Saga.OVER,
    )


def _reason(text: str) -> str:
    return storable(text, _REASON_LIMIT)
