"""Owns `windlass workers`: who works on this store, and who is gone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import facts, options, show, target
from windlass.cli.listing import Column, Listing
from windlass.core.bounds import Bounds
from windlass.core.job import WorkerInfo, WorkerRecord

_STYLES = {"running": "green", "draining": "yellow", "gone": "dim"}


def workers(
    *,
    alive: Annotated[bool, typer.Option("--alive", help="Only those that are alive.")] = False,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List workers, alive and gone.

    A worker is gone when it has retired, or its lease has run out; it is remembered for a day.
    """

    async def work(chosen: Windlass) -> tuple[list[WorkerRecord], datetime]:
        return await chosen.store.workers(), (await chosen.store.sweep()).now

    known, now = target.visit(app, url, work)
    shown = sorted((each for each in known if each.alive or not alive), key=lambda w: not w.alive)
    if as_json:
        show.document({"workers": [facts.worker_facts(worker) for worker in shown]})
        return
    if not shown:
        show.note("no worker is known here; start one: windlass worker module:attribute")
        return
    listing = Listing(
        Column("worker"),
        Column("state"),
        Column("seen"),
        Column("up", rank=2),
        Column("processed", number=True),
        Column("running", number=True),
        Column("host", rank=4),
        Column("pid", rank=3, number=True),
        Column("new jobs", rank=2),
        Column("metrics", rank=3),
        Column("queues", rank=1),
        Column("kinds", stretch=True),
    )
    for worker in shown:
        listing.add(*_row(worker, now))
    listing.print(show.stdout())


def _row(worker: WorkerRecord, now: datetime) -> list[Text]:
    told = facts.worker_facts(worker)
    return [
        show.cell(told["id"]),
        Text(told["state"], _STYLES[told["state"]]),
        show.cell(show.ago(worker.last_seen, now)),
        show.cell(show.short((now if worker.alive else worker.last_seen) - worker.started_at)),
        show.count(told["processed"]),
        Text(_running(worker)),
        show.cell(told["host"]),
        show.cell(told["pid"]),
        show.cell("woken" if told["listening"] else "polls" if worker.alive else ""),
        show.cell(told["metrics"]),
        show.cell(_queues(worker.info)),
        show.cell(", ".join(told["kinds"])),
    ]


def _queues(info: WorkerInfo) -> str:
    """Tell which queues a worker serves, as `--queues` would be written."""
    slots = {queue: f"={count}" for queue, count in info.queue_slots.items()}
    served = ", ".join(f"{queue}{slots.get(queue, '')}" for queue in info.queues) or "all"
    return f"{served} but {', '.join(info.excluded)}" if info.excluded else served


def _running(worker: WorkerRecord) -> str:
    """Tell how many jobs run in how many slots, and within which bounds those follow the load."""
    told = facts.worker_facts(worker)
    bounds = Bounds(least=told["least_slots"], most=told["most_slots"])
    return f"{told['running']}/{told['slots']}" + ("" if bounds.fixed else f" of {bounds}")


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass workers --alive --json"))(workers)
