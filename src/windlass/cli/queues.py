"""Owns `windlass queues`: what waits in each, and whether workers may take from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import facts, options, show, target
from windlass.cli.listing import Column, Listing
from windlass.core.states import WAITING, State

queues = typer.Typer(no_args_is_help=True, help="Look at queues, pause and resume them.")
_RANKS = {State.CANCELLED: 2, State.COMPLETED: 1}
Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class Depth:
    """What is in a queue."""

    queue: str
    paused: bool
    counts: dict[State, int]
    waits: timedelta | None


@queues.command("list", epilog=options.example("windlass queues list --json"))
def list_queues(
    *, app: options.App = None, url: options.Url = None, as_json: options.AsJson = False
) -> None:
    """List queues: jobs by state, how long the oldest has waited, and whether it is paused."""
    depths = target.visit(app, url, measure)
    if as_json:
        show.document({"queues": [_facts(depth) for depth in depths]})
        return
    if not depths:
        show.note("no queue has jobs, and none is paused")
        return
    listing = Listing(
        Column("queue"),
        Column(""),
        *(Column(state.value, number=True, rank=_RANKS.get(state, 0)) for state in State),
        Column("oldest", number=True),
    )
    for depth in depths:
        listing.add(
            show.cell(depth.queue),
            Text("paused" if depth.paused else "", "yellow"),
            *(_count(state, depth.counts[state]) for state in State),
            Text("" if depth.waits is None else show.short(depth.waits)),
        )
    listing.print(show.stdout())


@queues.command(epilog=options.example("windlass queues pause mail"))
def pause(
    queue: Queue,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Keep workers from starting jobs of a queue; what runs goes on, and enqueueing works."""

    async def work(chosen: Windlass) -> bool:
        with options.usage():
            return await chosen.control.pause(queue)

    is_new = target.visit(app, url, work)
    _tell(queue, "paused", "is paused already", changed=is_new, paused=True, as_json=as_json)


@queues.command(epilog=options.example("windlass queues resume mail"))
def resume(
    queue: Queue,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Let workers start jobs of a queue again."""

    async def work(chosen: Windlass) -> bool:
        return await chosen.control.resume(queue)

    was_paused = target.visit(app, url, work)
    _tell(queue, "resumed", "was not paused", changed=was_paused, paused=False, as_json=as_json)


async def measure(app: Windlass) -> list[Depth]:
    """Count what is in the queues, by the store's clock."""
    counts, paused = await app.store.counts(), await app.control.paused()
    now = (await app.store.sweep()).now
    return [
        Depth(
            queue=queue,
            paused=queue in paused,
            counts={
                state: sum(c.count for c in counts if c.queue == queue and c.state is state)
                for state in State
            },
            waits=max(
                (
                    now - c.oldest
                    for c in counts
                    if c.queue == queue and c.state in WAITING and c.oldest and c.oldest <= now
                ),
                default=None,
            ),
        )
        for queue in sorted({count.queue for count in counts} | set(paused))
    ]


def _count(state: State, number: int) -> Text:
    return show.count(number, show.STATE_STYLES[state])


def _facts(depth: Depth) -> facts.Facts:
    return {
        "queue": depth.queue,
        "paused": depth.paused,
        **{state.value: depth.counts[state] for state in State},
        "oldest_waiting_seconds": None if depth.waits is None else depth.waits.total_seconds(),
    }


def _tell(
    queue: str, done: str, was_so: str, *, changed: bool, paused: bool, as_json: bool
) -> None:
    if as_json:
        show.document({"queue": queue, "paused": paused, "changed": changed})
    else:
        show.say(f"queue {queue} {done if changed else was_so}")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(queues, name="queues")
