"""Owns how the steps of a job, and what became of their undos, are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli import show
from windlass.core.job import Job, Saga
from windlass.core.steps import (
    Done,
    Entry,
    Failed,
    Slept,
    Steps,
    UndoFailed,
    Undone,
    Waited,
)
from windlass.core.text import inert

_STYLES = {"done": "green", "slept": "green", "waited": "green", "failed": "red"}
_SAGAS = {
    Saga.READY: "will be undone if the job fails for good",
    Saga.UNDOING: "not undone",
    Saga.OVER: "not undone",
}


@dataclass
class Stair:
    """What is known of one step."""

    name: str
    state: str = "started, not finished"
    seconds: float = 0.0
    tries: int = 0
    error: str = ""
    result: Any = None
    undo: str = ""
    undo_error: str = ""


def stairs(job: Job) -> list[Stair]:
    """Return the steps of a job in the order in which they first came.

    Raises:
        ValueError: a newer release has written what this one does not know.
    """
    found: dict[str, Stair] = {}
    steps = Steps(job.steps)
    if steps.unreadable:
        raise ValueError(f"{steps.unreadable} entries of another release")
    for entry in steps.entries:
        name = getattr(entry, "name", None)
        if name is not None:
            _take(found.setdefault(name, Stair(name)), entry)
    for name in steps.undoable:
        stair = found[name]
        stair.undo = stair.undo or _SAGAS.get(job.saga or Saga.READY, "")
    return list(found.values())


def facts_of(job: Job) -> list[dict[str, Any]]:
    """Tell the steps of a job to scripts; what cannot be read, as it is."""
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
            for each in stairs(job)
        ]
    except ValueError:
        return [{"entry": entry} for entry in job.steps]


def drawn(job: Job) -> Iterator[RenderableType]:
    """Show the steps of a job, a line each, and what went wrong below."""
    try:
        found = stairs(job)
    except ValueError:
        yield from (show.block(entry, "dim") for entry in job.steps)
        return
    for number, each in enumerate(found, 1):
        yield _line(number, each)
        for error in filter(None, (each.error, each.undo_error)):
            yield show.block(error, "red")


def _line(number: int, stair: Stair) -> Text:
    result = "" if stair.result is None else f" → {json.dumps(stair.result, ensure_ascii=False)}"
    undo_style = "yellow" if stair.undo == "undone" else "red" if stair.undo_error else "dim"
    return Text.assemble(
        f"  {number}. ",
        (inert(stair.name), "bold"),
        "  ",
        (stair.state, _STYLES.get(stair.state, "yellow")),
        f" after {show.short(timedelta(seconds=stair.seconds))}" if stair.seconds else "",
        f", {show.plural(stair.tries, 'failure')} before"
        if stair.tries and not stair.error
        else "",
        show.cell(result, "dim"),
        (f"  · {stair.undo}" if stair.undo else "", undo_style),
    )


def _take(stair: Stair, entry: Entry) -> None:
    match entry:
        case Done(result=result, seconds=seconds):
            stair.state, stair.seconds, stair.error = "done", seconds, ""
            stair.result = json.loads(bytes(result))
        case Failed(error=error, seconds=seconds):
            stair.state, stair.seconds, stair.error = "failed", seconds, error
            stair.tries += 1
        case Slept():
            stair.state = "slept"
        case Waited(event=event, result=result):
            stair.state = "waited" if event is not None else "waited in vain"
            stair.result = json.loads(bytes(result))
        case Undone():
            stair.undo, stair.undo_error = "undone", ""
        case UndoFailed(error=error, failures=failures, for_good=for_good):
            times = show.plural(failures, "failure")
            stair.undo = (
                f"not undone, given up after {times}" if for_good else f"not undone, {times}"
            )
            stair.undo_error = error
