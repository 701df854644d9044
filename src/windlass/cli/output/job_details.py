"""Owns the output of `jobs show` and `dead show`: one job with its whole history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from windlass.cli.output import console as show
from windlass.cli.output import step_details
from windlass.core import documents as facts
from windlass.core.audit import AuditEntry
from windlass.core.failures.crash_suspects import LOST, LOST_WITH_HOST, NOT_BEGUN, SUSPECTED
from windlass.core.jobs.job import Attempt, ErrorInfo, Job
from windlass.core.jobs.states import State
from windlass.core.payloads.masked_job import value_of
from windlass.core.values.durations import brief, human
from windlass.core.values.text import inert
from windlass.core.why.reason import Reason

_UNCHARGED = (SUSPECTED, LOST, LOST_WITH_HOST, NOT_BEGUN)
"""Ends of attempts that look like a failure of the job, and do not count as one."""
_OUTCOMES = {
    "snoozed": "blue",
    "released": "yellow",
    "system error": "yellow",
    "cancelled": "dim",
    "undone": "yellow",
    **dict.fromkeys(_UNCHARGED, "yellow"),
}


def job_report(
    job: Job, now: datetime, reasons: Sequence[Reason] = (), actions: Sequence[AuditEntry] = ()
) -> Group:
    """Show a job, why it waits, and what operators did with it."""
    return Group(*_parts(job, now, reasons), *_actions(actions, now))


def _parts(job: Job, now: datetime, reasons: Sequence[Reason]) -> Iterator[RenderableType]:
    yield Text.assemble(("job ", "dim"), (str(job.id), "bold"), "  ", show.state(job.state))
    yield Text()
    grid = show.pairs()
    for name, value in _rows(job, now):
        grid.add_row(name, Text(inert(value)))
    for each in reasons:
        remedy = f" → {each.remedy}" if each.remedy else ""
        grid.add_row("why", Text(inert(f"{each.message}{remedy}"), "yellow"))
    yield grid
    yield from _section("payload", value_of(job.payload))
    if job.result is not None:
        yield from _section("result", value_of(job.result))
    if job.headers:
        yield from _section("headers", job.headers)
    if job.steps:
        yield from _heading("steps")
        yield from step_details.step_lines(job)
    if job.history:
        yield from _heading("attempts that did not complete")
        for attempt in job.history:
            yield from _attempt(attempt)
    elif job.error is not None:
        yield from _heading("error")
        yield from _error(job.error)


def _actions(actions: Sequence[AuditEntry], now: datetime) -> Iterator[RenderableType]:
    if actions:
        yield from _heading("actions of operators, newest first")
    for each in actions:
        reason = f": {each.reason}" if each.reason else ""
        said = f"{each.action} by {each.by} via {each.via}{reason}"
        yield Text(f"  {show.moment(each.at, now)}  {inert(said)}")


def _rows(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    limit = "the handler's" if job.max_retries is None else str(job.max_retries)
    rows = {
        "kind": job.kind,
        "queue": job.queue,
        "priority": str(job.priority) if job.priority else "",
        "key": job.key,
        "tags": ", ".join(job.tags),
        "reason": job.reason,
        "held by": job.worker if job.state is State.RUNNING else "",
        "last run by": job.worker if job.state is not State.RUNNING else "",
        "progress": _progress(job),
        "cancelling": "cancel requested" if job.cancel_requested else "",
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
        (", not charged" if attempt.outcome in _UNCHARGED else "", style),
        (f" after {brief(attempt.duration)}" if attempt.duration else "", ""),
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
