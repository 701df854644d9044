"""Owns `windlass bulk`: following, pausing, resuming and stopping bulk operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.actions.bulk_moves import counted
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core.errors import ConfigError
from windlass.core.jobs.bulk import BulkOperation, BulkState, bulk_facts
from windlass.core.jobs.ids import shortened
from windlass.core.jobs.queries import described
from windlass.core.values.text import inert

bulk = options.Commands("Follow, pause, resume and stop bulk operations.")
_STYLES = {
    BulkState.RUNNING: "cyan",
    BulkState.PAUSED: "yellow",
    BulkState.STOPPED: "red",
    BulkState.COMPLETED: "green",
}
Id = Annotated[
    str,
    typer.Argument(metavar="ID", show_default=False, help="Its id, or a unique prefix of it."),
]


@bulk.command("list", epilog=options.example("windlass bulk list --json"))
def list_operations(*, target: options.Target, as_json: options.AsJson = False) -> None:
    """List the bulk operations of the last 30 days, the newest first."""

    async def work(chosen: Windlass) -> tuple[list[BulkOperation], datetime]:
        return await chosen.control.abulks(), (await chosen.store.ringing(1)).now

    found, now = target.visit(work)
    if as_json:
        show.document({"bulks": [bulk_facts(each) for each in found]})
        return
    if not found:
        show.note("no bulk operations")
        return
    _list(found, now)


def _list(found: Sequence[BulkOperation], now: datetime) -> None:
    listing = Listing(
        Column("id"),
        Column("state"),
        Column("verb"),
        Column("jobs", number=True),
        Column("of", number=True),
        Column("started", rank=1),
        Column("by", rank=2),
        Column("conditions", stretch=True),
    )
    for each, short in zip(found, shortened([each.id for each in found]), strict=True):
        listing.add(
            show.cell(short),
            Text(each.state.value, _STYLES[each.state]),
            show.cell(each.verb.value),
            show.count(each.moved),
            show.cell(f"{each.matched:,}{'+' if each.is_capped else ''}"),
            show.cell(show.ago(each.started_at, now), "dim"),
            show.cell(each.by),
            show.cell(described(each.which)),
        )
    listing.print(show.stdout())


@bulk.command("show", epilog=options.example("windlass bulk show 0197f3a2-6c1e-7b60"))
def show_operation(bulk_id: Id, *, target: options.Target, as_json: options.AsJson = False) -> None:
    """Show a bulk operation: how far it came, who started it, and why."""

    async def work(chosen: Windlass) -> tuple[BulkOperation, datetime, bool]:
        operation = await _find(chosen, bulk_id)
        workers = await chosen.store.workers()
        now = (await chosen.store.ringing(1)).now
        return operation, now, any(worker.alive for worker in workers)

    operation, now, is_served = target.visit(work)
    if as_json:
        show.document(bulk_facts(operation))
        return
    show.stdout().print(_portrait(operation, now))
    if operation.state is BulkState.RUNNING and not is_served:
        show.note("no worker is running; the operation waits for one")


def _add_command(
    word: str, act: Callable[[Windlass, UUID], Awaitable[BulkOperation]], help_: str
) -> None:
    def pull(bulk_id: Id, *, target: options.ActingTarget, as_json: options.AsJson = False) -> None:
        async def work(chosen: Windlass) -> BulkOperation:
            return await act(chosen, (await _find(chosen, bulk_id)).id)

        operation = target.visit(work)
        if as_json:
            show.document(bulk_facts(operation))
        else:
            jobs = show.plural(operation.moved, "job")
            show.say(f"bulk operation {operation.id} is {operation.state}: {jobs} moved")

    epilog = options.example(f"windlass bulk {word} 0197f3a2-6c1e-7b60")
    bulk.command(word, help=help_, epilog=epilog)(pull)


_add_command(
    "pause",
    lambda app, operation: app.control.apause_bulk(operation),
    "Pause a bulk operation after the step under way.",
)
_add_command(
    "resume",
    lambda app, operation: app.control.aresume_bulk(operation),
    "Carry on a bulk operation that is paused.",
)
_add_command(
    "stop",
    lambda app, operation: app.control.astop_bulk(operation),
    "End a bulk operation; the jobs that it has moved stay as they are.",
)


async def _find(app: Windlass, given: str) -> BulkOperation:
    digits = given.strip().lower().replace("-", "")
    known = await app.control.abulks()
    found = [each for each in known if digits and each.id.hex.startswith(digits)]
    if len(found) != 1:
        number = "several bulk operations begin" if found else "no bulk operation begins"
        raise ConfigError(f"{number} with {given!r}; windlass bulk list shows them")
    return found[0]


def _portrait(operation: BulkOperation, now: datetime) -> RenderableType:
    jobs = counted(operation.matched, "job", is_capped=operation.is_capped)
    part = "" if operation.fraction is None else f" ({operation.fraction:.0%})"
    rows = {
        "progress": f"{operation.seen:,} of {jobs}{part}",
        "moved": f"{operation.moved:,}",
        "refused": f"{operation.refused:,}, which changed or may not be moved"
        if operation.refused
        else "",
        "conditions": described(operation.which),
        "rate": operation.rate or "",
        "limit": "" if operation.limit is None else f"{operation.limit:,}",
        "started": show.moment(operation.started_at, now),
        "ended": show.moment(operation.ended_at, now),
        "by": f"{operation.by} via {operation.via}",
        "reason": operation.reason,
        "error": operation.error,
    }
    grid = show.pairs()
    for name, value in rows.items():
        if value:
            grid.add_row(name, Text(inert(value)))
    state = Text(operation.state.value, _STYLES[operation.state])
    head = Text.assemble(
        ("bulk operation ", "dim"), (str(operation.id), "bold"), f"  {operation.verb}  ", state
    )
    return Group(head, Text(), grid)
