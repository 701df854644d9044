"""Owns `windlass schedules`: listing, pausing, running and removing recurring jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from windlass.app import Windlass
from windlass.app.masking import redaction_of
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.schedules.status import ScheduleStatus
from windlass.core.values.durations import human
from windlass.core.values.text import inert

schedules = options.Commands("List, pause, resume and run schedules.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_STYLES = {"active": "green", "paused": "yellow", "unserved": "red"}


@schedules.command("list", epilog=options.example("windlass schedules list --prefix tenant-7"))
def list_schedules(
    *,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Only schedules whose names start with this.")
    ] = "",
    limit: options.Limit = 100,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List schedules: when they tick, what comes next, and whether any worker serves them."""

    async def work(chosen: Windlass) -> list[ScheduleStatus]:
        return await chosen.schedules.alist(prefix)

    found = target.visit(work)
    if as_json:
        listed = [facts.schedule_facts(each) for each in found[:limit]]
        show.document({"schedules": listed, "total": len(found)})
        return
    if not found:
        show.note("no schedules; those declared in an app's code appear once a worker has run")
        return
    _table(found[:limit])
    if len(found) > limit:
        show.note(f"{show.plural(len(found) - limit, 'more schedule')}: --limit, --prefix")


def _table(found: list[ScheduleStatus]) -> None:
    listing = Listing(
        Column("schedule"),
        Column("state"),
        Column("when"),
        Column("zone", rank=3),
        Column("next"),
        Column("last", rank=2),
        Column("ticks", number=True, rank=4),
        Column("skipped", number=True, rank=5),
        Column("kind", rank=1),
    )
    for each in found:
        record, cadence = each.record, each.record.schedule.cadence
        listing.add(
            show.cell(each.name),
            _state(each),
            show.cell(cadence),
            show.cell("" if cadence.every else cadence.tz),
            show.cell(show.ago(each.next, each.now)),
            show.cell(show.ago(record.last_tick, each.now), "dim"),
            show.count(record.ticks),
            show.count(record.skipped, "yellow"),
            show.cell(each.kind),
        )
    listing.print(show.stdout())


@schedules.command("show", epilog=options.example("windlass schedules show nightly"))
def show_schedule(name: Name, *, target: options.Target, as_json: options.AsJson = False) -> None:
    """Show a schedule: its times, its job, and its progress."""

    async def work(chosen: Windlass) -> tuple[ScheduleStatus, Any]:
        status = await chosen.schedules.aget(name)
        template = status.record.schedule.job
        payload = chosen.registry.readable_payload(template.kind, template.payload.encode())
        return status, redaction_of(chosen).value(payload)

    status, payload = target.visit(work)
    if as_json:
        show.document({**facts.schedule_facts(status), "payload": payload})
    else:
        show.stdout().print(_portrait(status, payload))


@schedules.command("next", epilog=options.example("windlass schedules next nightly --count 3"))
def next_ticks(
    name: Name,
    *,
    count: Annotated[int, typer.Option("--count", min=1, max=1_000, help="How many.")] = 10,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """Show when a schedule will tick, in its own time zone; a paused one as if resumed now."""

    async def work(chosen: Windlass) -> tuple[ScheduleStatus, list[datetime]]:
        status = await chosen.schedules.aget(name)
        return status, await chosen.schedules.aupcoming(name, count)

    status, times = target.visit(work)
    if as_json:
        show.document({"schedule": name, "next": [facts.iso(each) for each in times]})
        return
    zone = ZoneInfo(status.record.schedule.cadence.tz)
    for each in times:
        local = each.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z")
        show.say(f"{local}  ({show.ago(each, status.now)})")
    if status.paused:
        show.note("paused; resume it with: windlass schedules resume")


@schedules.command("pause", epilog=options.example("windlass schedules pause nightly"))
def pause_schedule(
    name: Name, *, target: options.ActingTarget, as_json: options.AsJson = False
) -> None:
    """Pause a schedule until it is resumed; jobs that it enqueued already run."""
    _pull(target, name, lambda chosen: chosen.schedules.apause(name), as_json=as_json)


@schedules.command("resume", epilog=options.example("windlass schedules resume nightly"))
def resume_schedule(
    name: Name, *, target: options.ActingTarget, as_json: options.AsJson = False
) -> None:
    """Resume a schedule from its next time on."""
    _pull(target, name, lambda chosen: chosen.schedules.aresume(name), as_json=as_json)


@schedules.command("run", epilog=options.example("windlass schedules run nightly"))
def run_schedule(
    name: Name, *, target: options.ActingTarget, as_json: options.AsJson = False
) -> None:
    """Enqueue the job of a schedule now, paused or not; its next tick stays the same."""

    async def work(chosen: Windlass) -> tuple[str, bool]:
        handle = await chosen.schedules.arun(name)
        return str(handle.id), handle.is_duplicate

    job_id, is_duplicate = target.visit(work)
    if as_json:
        show.document({"id": job_id, "is_duplicate": is_duplicate})
        return
    if is_duplicate:
        show.note("nothing was added: this job holds the unique key")
    show.say(job_id)


@schedules.command("remove", epilog=options.example("windlass schedules remove nightly --yes"))
def remove_schedule(
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Remove a schedule; its jobs stay.

    A schedule that is part of an app's code comes back with the next worker that has it.
    """
    if not (yes or sys.stdin.isatty()):
        raise typer.BadParameter(
            "remove cannot be undone; confirm with --yes (stdin is not a terminal)"
        )
    if not (yes or typer.confirm(f"Remove schedule {inert(name)} permanently?", err=True)):
        show.note("nothing was removed")
        raise typer.Exit(1)

    async def work(chosen: Windlass) -> ScheduleStatus:
        status = await chosen.schedules.aget(name)
        await chosen.schedules.aremove(name)
        return status

    status = target.visit(work)
    if as_json:
        show.document({"schedule": name, "removed": True})
    else:
        show.say(f"schedule {name} removed")
    if status.record.schedule.declared:
        show.note(
            "it is declared in an app's code, and comes back when a worker of that app starts"
        )


def _pull(
    target: options.Target,
    name: str,
    act: Callable[[Windlass], Awaitable[ScheduleStatus]],
    *,
    as_json: bool,
) -> None:
    async def work(chosen: Windlass) -> tuple[ScheduleStatus, bool]:
        before = await chosen.schedules.aget(name)
        await act(chosen)
        after = await chosen.schedules.aget(name)
        return after, after.paused != before.paused

    status, changed = target.visit(work)
    if as_json:
        show.document({**facts.schedule_facts(status), "changed": changed})
        return
    verb = "is" if changed else "was already"
    state = "paused" if status.paused else "active"
    upcoming = "" if status.next is None else f", next tick {show.ago(status.next, status.now)}"
    show.say(f"schedule {name} {verb} {state}{upcoming}")


def _state(status: ScheduleStatus) -> Text:
    return Text(status.state, _STYLES[status.state])


def _portrait(status: ScheduleStatus, payload: object) -> Group:
    record, schedule, now = status.record, status.record.schedule, status.now
    grid = show.pairs()
    rows = {
        "when": str(schedule.cadence),
        "zone": "" if schedule.cadence.every else schedule.cadence.tz,
        "jitter": human(schedule.jitter) if schedule.jitter else "",
        "catch up": f"{schedule.catch_up}, at most {schedule.catch_up_limit}"
        if schedule.catch_up == "all"
        else schedule.catch_up,
        "overlap": schedule.overlap,
        "next": show.moment(status.next, now),
        "last": show.moment(record.last_tick, now),
        "last job": "" if record.last_job is None else str(record.last_job),
        "ticks": f"{record.ticks:,} ({record.skipped:,} skipped)",
        "kind": schedule.job.kind,
        "queue": schedule.job.queue,
        "since": show.moment(record.since, now),
        "paused": show.moment(record.paused_at, now),
        "from": "an app's code" if schedule.declared else "app.schedules.put",
    }
    for label, value in rows.items():
        if value:
            grid.add_row(label, Text(inert(value)))
    head = Text.assemble(("schedule ", "dim"), (inert(status.name), "bold"), "  ", _state(status))
    parts: list[RenderableType] = [head, Text(), grid]
    if status.state == "unserved":
        why = (
            "no live worker can run it; check that one has its kind, the code that declares it "
            "and its time zone: windlass doctor"
        )
        parts.insert(1, Text(why, "red"))
    text = json.dumps(payload, indent=2, ensure_ascii=False)
    return Group(*parts, Text(), Text("payload", "bold"), show.block(text))
