"""Owns the facts about each step of a job, and about its undo, as people and scripts see them."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from windlass.core.jobs.job import Job, Saga
from windlass.core.values.text import plural
from windlass.core.workflows.step_log import (
    Done,
    Entry,
    Failed,
    Slept,
    Steps,
    UndoFailed,
    Undone,
    Waited,
)

_SAGAS = {
    Saga.READY: "undone if the job fails for good",
    Saga.UNDOING: "not undone",
    Saga.OVER: "not undone",
}


class StepRow(Struct):
    """The facts about one step."""

    name: str
    state: str = "started, not finished"
    seconds: float = 0.0
    tries: int = 0
    error: str = ""
    result: Any = None
    undo: str = ""
    undo_error: str = ""


def steps_of(job: Job) -> list[StepRow]:
    """Return the steps of a job in the order in which they first came.

    Raises:
        ValueError: a newer release has written what this one does not know.
    """
    found: dict[str, StepRow] = {}
    steps = Steps(job.steps)
    if steps.unreadable:
        raise ValueError(f"{steps.unreadable} entries of another release")
    for entry in steps.entries:
        name = getattr(entry, "name", None)
        if name is not None:
            _take(found.setdefault(name, StepRow(name)), entry)
    for name in steps.undoable:
        step = found[name]
        step.undo = step.undo or _SAGAS.get(job.saga or Saga.READY, "")
    return list(found.values())


def step_facts(job: Job) -> list[dict[str, Any]]:
    """Return the steps of a job for scripts; unreadable entries as they are."""
    try:
        return [
            {
                "name": each.name,
                "state": each.state,
                "seconds": each.seconds,
                "failures": each.tries,
                "error": each.error or None,
                "result": each.result,
                "undo": each.undo or None,
                "undo_error": each.undo_error or None,
            }
            for each in steps_of(job)
        ]
    except ValueError:
        return [{"entry": entry} for entry in job.steps]


def _take(step: StepRow, entry: Entry) -> None:
    match entry:
        case Done(result=result, seconds=seconds):
            step.state, step.seconds, step.error = "done", seconds, ""
            step.result = json.loads(bytes(result))
        case Failed(error=error, seconds=seconds):
            step.state, step.seconds, step.error = "failed", seconds, error
            step.tries += 1
        case Slept():
            step.state = "slept"
        case Waited(event=event, result=result):
            step.state = "waited" if event is not None else "timed out"
            step.result = json.loads(bytes(result))
        case Undone():
            step.undo, step.undo_error = "undone", ""
        case UndoFailed(error=error, failures=failures, for_good=for_good):
            times = plural(failures, "failure")
            step.undo = f"not undone, gave up after {times}" if for_good else f"not undone, {times}"
            step.undo_error = error
