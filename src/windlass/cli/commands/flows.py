"""Owns `windlass flows`: listing, drawing and cancelling flows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.app.workflows.flow_rows import flow_facts, flow_parts
from windlass.app.workflows.flow_view import UNDER_WAY, FlowView, view_of, viewed
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.flow_tree import picture
from windlass.cli.output.tables import Column, Listing
from windlass.core.errors import FlowInvalid
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import FINISHED, State
from windlass.core.workflows.flow_graph import FLOW_KIND

flows = options.Commands("List, draw and cancel flows of jobs.")


@flows.command("list", epilog=options.example("windlass flows list --limit 20"))
def list_flows(
    *,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", help="Only flows whose own job is in this state."),
    ] = None,
    limit: options.Limit = 50,
    after: options.After = None,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List flows, the newest first. One whose own job is scheduled is under way."""
    which = JobFilter(states=tuple(states or ()), kind=FLOW_KIND)

    async def work(chosen: Windlass) -> tuple[list[FlowView], UUID | None, datetime]:
        last = None if after is None else await chosen.jobs.ajob_id(after, kind=FLOW_KIND)
        page = await chosen.store.find(which, limit=limit, after=last)
        found = [await _glance(chosen, job) for job in page.jobs]
        readable = [view for view in found if view is not None]
        return readable, page.after, (await chosen.store.sweep()).now

    found, rest, now = target.visit(work)
    if as_json:
        after_ = None if rest is None else str(rest)
        show.document({"flows": [flow_facts(view) for view in found], "after": after_})
        return
    listing = Listing(
        Column("id"),
        Column("flow"),
        Column("state"),
        Column("jobs", number=True, rank=1),
        Column("created", rank=2),
        Column("what", stretch=True),
    )
    for view, short in zip(found, show.ids([view.job for view in found]), strict=True):
        listing.add(
            show.cell(short),
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
    flow_id: options.FlowId, *, target: options.Target, as_json: options.AsJson = False
) -> None:
    """Draw a flow: its jobs below their parents, and the state of each."""

    async def work(chosen: Windlass) -> FlowView:
        return await view_of(chosen.store, await _flow_id(chosen, flow_id))

    view = target.visit(work)
    if as_json:
        details = {"states": dict(view.own_counts), "parts": flow_parts(view)}
        show.document(flow_facts(view) | details)
        return
    head = (view.chart.graph.name, "bold"), "  ", _state(view.job), "  ", _what(view)
    show.say(Text.assemble(*head))
    show.say(Text(str(view.job.id), "dim"))
    show.say("")
    for line in picture(view):
        show.say(line)


@flows.command(epilog=options.example("windlass flows cancel 0197f3a2-6c1e-8b60-8000-3f1d2c400000"))
def cancel(
    flow_id: options.FlowId,
    *,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Cancel a flow: waiting jobs never run, and running ones are asked to end."""

    async def work(chosen: Windlass) -> FlowView:
        flow = (await view_of(chosen.store, await _flow_id(chosen, flow_id))).job.id
        await chosen.control.acancel(flow)
        return await view_of(chosen.store, flow)

    view = target.visit(work)
    if as_json:
        show.document(flow_facts(view))
    else:
        cancelled = view.own_counts[State.CANCELLED.value]
        show.say(f"{view.job.id}  {show.plural(cancelled, 'job')} cancelled")


async def _flow_id(app: Windlass, given: str) -> UUID:
    # The ids of a flow's jobs begin like the id of the flow.
    return await app.jobs.ajob_id(given, kind=FLOW_KIND)


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
    if view.job.state in FINISHED:
        error = None if view.job.error is None else view.job.error.message
        return (error if view.job.state is State.DEAD else view.job.reason) or ""
    counts, total = view.own_counts, view.chart.size + len(view.chart.last)
    ended = sum(counts[state.value] for state in FINISHED)
    dead = f", {counts[State.DEAD.value]:,} dead" if counts[State.DEAD.value] else ""
    return f"{ended:,} of {total:,} jobs ended{dead}"
