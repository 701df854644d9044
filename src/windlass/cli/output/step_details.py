"""Owns the output of a job's steps, and of their undos, at a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.output import console as show
from windlass.core.jobs.job import Job
from windlass.core.values.durations import brief
from windlass.core.values.text import inert
from windlass.core.workflows.step_rows import StepRow, steps_of

_STYLES = {"done": "green", "slept": "green", "waited": "green", "failed": "red"}


def step_lines(job: Job) -> Iterator[RenderableType]:
    """Show the steps of a job, a line each, with errors below."""
    try:
        found = steps_of(job)
    except ValueError:
        yield from (show.block(entry, "dim") for entry in job.steps)
        return
    for number, each in enumerate(found, 1):
        yield _line(number, each)
        for error in filter(None, (each.error, each.undo_error)):
            yield show.block(error, "red")


def _line(number: int, step: StepRow) -> Text:
    result = "" if step.result is None else f" → {json.dumps(step.result, ensure_ascii=False)}"
    undo_style = "yellow" if step.undo == "undone" else "red" if step.undo_error else "dim"
    return Text.assemble(
        f"  {number}. ",
        (inert(step.name), "bold"),
        "  ",
        (step.state, _STYLES.get(step.state, "yellow")),
        f" after {brief(timedelta(seconds=step.seconds))}" if step.seconds else "",
        f", {show.plural(step.tries, 'failure')} before" if step.tries and not step.error else "",
        show.cell(result, "dim"),
        (f"  · {step.undo}" if step.undo else "", undo_style),
    )
