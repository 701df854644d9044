"""Owns what `jobs show` and `dead show` print: one job with its whole story."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from windlass.cli import facts, show, stairs
from windlass.core.durations import human
from windlass.core.job import Attempt, ErrorInfo, Job
from windlass.core.reasons import Reason
from windlass.core.states import State
from windlass.core.suspicion import LOST, LOST_WITH_HOST, SUSPECTED
from windlass.core.text import inert

_UNCHARGED = (SUSPECTED, LOST, LOST_WITH_HOST)
"""What looks like a job's own failure, and is not taken for one."""
_OUTCOMES = {
    "snoozed": "blue",
    "released": "yellow",
    "system error": "yellow",
    "cancelled": "dim",
    "undone": "yellow",
    **dict.fromkeys(_UNCHARGED, "yellow"),
}


def portrait(job: Job, now: datetime, reasons: Sequence[Reason] = ()) -> Group:
    """Show all that is known about a job, and why it does not run."""
    return Group(*_parts(job, now, reasons))


def _parts(job: Job, now: datetime, reasons: Sequence[Reason]) -> Iterator[RenderableType]:
    yield Text.assemble(("job ", "dim"), (str(job.id), "bold"), "  ", show.state(job.state))
    yield Text()
    grid = show.pairs()
    for name, value in _rows(job, now):
        grid.add_row(name, Text(inert(value)))
    for each in reasons:
        remedy = f" → {each.remedy}" if each.remedy else ""
        grid.add_row("why", Text(inert(f"{each.told}{remedy}"), "yellow"))
    yield grid
    yield from _section("payload", facts.value_of(job.payload))
    if job.result is not None:
        yield from _section("result", facts.value_of(job.result))
    if job.headers:
        yield from _section("headers", job.headers)
    if job.steps:
        yield from _heading("steps")
        yield from stairs.drawn(job)
    if job.history:
        yield from _heading("attempts that did not complete it")
        for attempt in job.history:
            yield from _attempt(attempt)
    elif job.error is not None:
        yield from _heading("error")
        yield from _error(job.error)


def _rows(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what there is to say, in the order in which people ask."""
    limit = "the handler's" if job.max_retries is None else str(job.max_retries)
    rows = {
        "kind": job.kind,
        "queue": job.queue,
        "priority": str(job.priority) if job.priority else "",
        "key": job.key,
        "reason": job.reason,
        "held by": job.worker if job.state is State.RUNNING else "",
        "last run by": job.worker if job.state is not State.RUNNING else "",
        "progress": _progress(job),
        "cancelling": "asked to end" if job.cancel_requested else "",
        "waits for": job.waiting_for,
        "flow": str(job.flow or ""),
        "created": show.moment(job.created_at, now),
        "due": show.moment(job.due_at, now),
        "started": show.moment(job.started_at, now),
        "finished": show.moment(job.finished_at, now),
        "expires": show.moment(job.expires_at, now),
        "attempts": f"{job.attempt} ({job.failures} failed, {job.crashes} crashed)",
        "max retries": limit,
        "timeout": "" if job.timeout is None else human(job.timeout),
        "unique key": job.unique_key,
    }
    for name, value in rows.items():
        if value:
            yield name, value


def _progress(job: Job) -> str:
    if job.progress is None:
        return ""
    return f"{job.progress.fraction:.0%}  {job.progress.message}".rstrip()


def _heading(title: str) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, "bold")


def _section(title: str, value: object) -> Iterator[RenderableType]:
    yield from _heading(title)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    yield show.block(text)


def _attempt(attempt: Attempt) -> Iterator[RenderableType]:
    started = "" if attempt.started_at is None else facts.iso(attempt.started_at)
    style = _OUTCOMES.get(attempt.outcome, "red")
    yield Text.assemble(
        f"  {attempt.number}. ",
        (inert(attempt.outcome), style),
        (_class_of(attempt), "dim"),
        (", nothing was charged" if attempt.outcome in _UNCHARGED else "", style),
        (f" after {show.short(attempt.duration)}" if attempt.duration else "", ""),
        (inert(f" · {started} · {attempt.worker or 'no worker'}"), "dim"),
    )
    if attempt.error is not None:
        yield from _error(attempt.error, style)


def _class_of(attempt: Attempt) -> str:
    error_class = None if attempt.error is None else attempt.error.error_class
    if error_class is None or attempt.outcome.startswith(error_class.value):
        return ""
    return f" ({error_class.value})"


def _error(error: ErrorInfo, style: str = "red") -> Iterator[RenderableType]:
    yield show.block(str(error), style)
    if error.traceback:
        yield show.block(error.traceback, "dim")
