"""Owns `windlass workers`: the workers of this store, alive and gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.numbers import share_of
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.stats.shortage import Shortage, shortages
from windlass.core.values.durations import brief
from windlass.core.values.names import is_builtin
from windlass.core.values.ranges import Bounds
from windlass.core.workers import WorkerInfo, WorkerRecord

_STYLES = {"running": "green", "draining": "yellow", "gone": "dim"}

EXAMPLES = ("windlass workers --alive --json",)


def workers(
    *,
    alive: Annotated[bool, typer.Option("--alive", help="Only live workers.")] = False,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List workers, alive and gone.

    A worker is gone when it has retired, or its lease has run out; it is remembered for a day.
    """

    async def work(
        chosen: Windlass,
    ) -> tuple[list[WorkerRecord], datetime, tuple[Shortage, ...]]:
        known, sweep = await chosen.store.workers(), await chosen.store.sweep()
        waiting = [head.lane for head in sweep.heads]
        return known, sweep.now, shortages(known, waiting, await chosen.control.apaused())

    known, now, short = target.visit(work)
    shown = sorted((each for each in known if each.alive or not alive), key=lambda w: not w.alive)
    if as_json:
        show.document({"workers": [_facts(worker, short) for worker in shown]})
        return
    if not shown:
        show.note("no workers; start one: windlass worker module:attribute")
        return
    listing = Listing(
        Column("worker"),
        Column("state"),
        Column("seen"),
        Column("up", rank=2),
        Column("processed", number=True),
        Column("running", number=True),
        Column("threads", number=True, rank=1),
        Column("isolated", number=True, rank=2),
        Column("host", rank=4),
        Column("pid", rank=3, number=True),
        Column("new jobs", rank=2),
        Column("metrics", rank=3),
        Column("queues", rank=1),
        Column("kinds", stretch=True),
    )
    for worker in shown:
        listing.add(*_row(worker, now, short))
    listing.print(show.stdout())
    for each in short:
        show.note(f"{each.message}; {each.remedy}")


def _facts(worker: WorkerRecord, short: Sequence[Shortage]) -> facts.Facts:
    lacking = [each for each in short if worker.info.id in each.workers]
    return facts.worker_facts(worker) | {
        "short": [
            {"pool": each.pool, "kinds": list(each.kinds), "remedy": each.remedy}
            for each in lacking
        ]
    }


def _row(worker: WorkerRecord, now: datetime, short: Sequence[Shortage]) -> list[Text]:
    known = facts.worker_facts(worker)
    return [
        show.cell(known["id"]),
        Text(known["state"], _STYLES[known["state"]]),
        show.cell(show.ago(worker.last_seen, now)),
        show.cell(brief((now if worker.alive else worker.last_seen) - worker.started_at)),
        show.count(known["processed"]),
        Text(_running(worker)),
        *(
            Text(
                share_of(known[f"in_{pool}"], known[pool]) if worker.alive else "",
                "bold red" if _is_short(worker, pool, short) else "",
            )
            for pool in ("threads", "isolated_processes")
        ),
        show.cell(known["host"]),
        show.cell(known["pid"]),
        show.cell("woken" if known["listening"] else "polls" if worker.alive else ""),
        show.cell(known["metrics"]),
        show.cell(_queues(worker.info)),
        show.cell(", ".join(kind for kind in known["kinds"] if not is_builtin(kind))),
    ]


def _is_short(worker: WorkerRecord, pool: str, short: Sequence[Shortage]) -> bool:
    return any(each.pool == pool and worker.info.id in each.workers for each in short)


def _queues(info: WorkerInfo) -> str:
    slots = {queue: f"={count}" for queue, count in info.queue_slots.items()}
    served = ", ".join(f"{queue}{slots.get(queue, '')}" for queue in info.queues) or "all"
    return f"{served} but {', '.join(info.excluded)}" if info.excluded else served


def _running(worker: WorkerRecord) -> str:
    known = facts.worker_facts(worker)
    bounds = Bounds(least=known["least_slots"], most=known["most_slots"])
    return f"{known['running']}/{known['slots']}" + ("" if bounds.fixed else f" of {bounds}")
