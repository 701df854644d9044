"""Owns `windlass flows`: which flows there are, how far they are, and the picture of one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.app.flow_view import UNDER_WAY, FlowView, view_of, viewed
from windlass.cli import facts, options, show, target
from windlass.cli.flow_picture import picture, rows_of
from windlass.cli.listing import Column, Listing
from windlass.core.errors import FlowInvalid
from windlass.core.flow import FLOW_KIND
from windlass.core.job import Job, JobFilter
from windlass.core.states import FINISHED, State

flows = typer.Typer(no_args_is_help=True, help="Look at flows of jobs, draw and cancel them.")


@flows.command("list", epilog=options.example("windlass flows list --limit 20"))
def list_flows(
    *,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", help="Only flows whose own job is in this state."),
    ] = None,
    limit: options.Limit = 50,
    after: options.After = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List flows, the newest first. One whose own job is scheduled is under way."""
    which = JobFilter(states=tuple(states or ()), kind=FLOW_KIND)

    async def work(chosen: Windlass) -> tuple[list[FlowView], UUID | None, datetime]:
        page = await chosen.store.find(which, limit=limit, after=after)
        found = [await _glance(chosen, job) for job in page.jobs]
        readable = [view for view in found if view is not None]
        return readable, page.after, (await chosen.store.sweep()).now

    found, rest, now = target.visit(app, url, work)
    if as_json:
        after_ = None if rest is None else str(rest)
        show.document({"flows": [_facts(view) for view in found], "after": after_})
        return
    listing = Listing(
        Column("id"),
        Column("flow"),
        Column("state"),
        Column("jobs", number=True, rank=1),
        Column("created", rank=2),
        Column("what", stretch=True),
    )
    for view in found:
        listing.add(
            show.cell(view.job.id),
            show.cell(view.chart.graph.name),
            _state(view.job),
            show.count(view.chart.size + len(view.chart.last)),
            show.cell(show.ago(view.job.created_at, now), "dim"),
            show.cell(_what(view)),
        )
    if found:
        listing.print(show.stdout())
    else:
        show.note("no flows")
    if rest is not None:
        show.note(f"there are more: --after {rest}")


@flows.command(
    "show", epilog=options.example("windlass flows show 0197f3a2-6c1e-8b60-8000-3f1d2c400000")
)
def show_flow(
    flow_id: options.Id,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Draw a flow: its jobs below those for which they wait, and how it stands with each."""

    async def work(chosen: Windlass) -> FlowView:
        return await view_of(chosen.store, flow_id)

    view = target.visit(app, url, work)
    if as_json:
        told = {"states": dict(view.own_counts), "parts": _parts(view)}
        show.document(_facts(view) | told)
        return
    head = (view.chart.graph.name, "bold"), "  ", _state(view.job), "  ", _what(view)
    show.say(Text.assemble(*head))
    show.say(Text(str(view.job.id), "dim"))
    show.say("")
    for line in picture(view):
        show.say(line)


@flows.command(epilog=options.example("windlass flows cancel 0197f3a2-6c1e-8b60-8000-3f1d2c400000"))
def cancel(
    flow_id: options.Id,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept with the flow.")] = (
        "cancelled by an operator"
    ),
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Cancel a flow: what has not run never will, and what runs is asked to end."""

    async def work(chosen: Windlass) -> FlowView:
        await view_of(chosen.store, flow_id)
        await chosen.control.cancel(flow_id, reason=reason)
        return await view_of(chosen.store, flow_id)

    view = target.visit(app, url, work)
    if as_json:
        show.document(_facts(view))
    else:
        cancelled = view.own_counts[State.CANCELLED.value]
        show.say(f"{view.job.id}  {show.plural(cancelled, 'job')} cancelled")


async def _glance(app: Windlass, job: Job) -> FlowView | None:
    try:
        return await viewed(app.store, job)
    except FlowInvalid:
        return None


def _state(job: Job) -> Text:
    if job.state is State.SCHEDULED and job.waiting_for:
        return Text(UNDER_WAY, "cyan")
    return show.state(job.state)


def _what(view: FlowView) -> str:
    """Say how far a flow is, or how it ended."""
    if view.job.state in FINISHED:
        error = None if view.job.error is None else view.job.error.message
        return (error if view.job.state is State.DEAD else view.job.reason) or ""
    counts, total = view.own_counts, view.chart.size + len(view.chart.last)
    ended = sum(counts[state.value] for state in FINISHED)
    dead = f", {counts[State.DEAD.value]:,} dead" if counts[State.DEAD.value] else ""
    return f"{ended:,} of {total:,} jobs ended{dead}"


def _facts(view: FlowView) -> facts.Facts:
    """Tell about a flow."""
    job = view.job
    return {
        "id": str(job.id),
        "name": view.chart.graph.name,
        "state": job.state.value,
        "jobs": view.chart.size + len(view.chart.last),
        "undos": view.chart.undos,
        "created_at": facts.iso(job.created_at),
        "finished_at": facts.iso(job.finished_at),
        "reason": job.reason,
    }


def _parts(view: FlowView) -> list[facts.Facts]:
    return [
        {
            "name": row.name,
            "kind": row.kind,
            "jobs": row.jobs,
            "after": list(row.after),
            "states": dict(row.counts),
        }
        for row in rows_of(view)
    ]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(flows, name="flows")
