"""Owns `windlass queues`: what waits in each, and whether workers may take from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import facts, options, show, target
from windlass.cli.listing import Column, Listing
from windlass.core.pauses import Pauses, resuming
from windlass.core.states import WAITING, State
from windlass.core.text import inert

queues = typer.Typer(no_args_is_help=True, help="Look at queues, pause, resume and drain them.")
_RANKS = {State.CANCELLED: 2, State.COMPLETED: 1}
Queue = Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)]
Kind = Annotated[str | None, typer.Option("--kind", help="A kind, instead of a queue.")]
Key = Annotated[str | None, typer.Option("--key", help="A key, like a tenant, instead of a queue.")]


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
    depths, pauses = target.visit(app, url, _look)
    if as_json:
        also = {"kinds": sorted(pauses.kinds), "keys": sorted(pauses.keys)}
        show.document({"queues": [_facts(depth) for depth in depths], "paused": also})
        return
    if not depths and not pauses:
        show.note("no queue has jobs, and none is paused")
        return
    if depths:
        _list(depths)
    for what, name in pauses:
        if what != "queue":
            show.note(f"{what} {name} is paused: {resuming(what, name)}")


def _list(depths: Sequence[Depth]) -> None:
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


@queues.command(epilog=options.example("windlass queues pause --kind send_email"))
def pause(
    queue: Queue = None,
    *,
    kind: Kind = None,
    key: Key = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Keep workers from starting jobs of a queue, a kind or a key.

    What runs goes on, and enqueueing works.
    """
    what = _what(queue, kind, key)

    async def work(chosen: Windlass) -> bool:
        with options.usage():
            return await chosen.control.pause(**what)

    is_new = target.visit(app, url, work)
    _tell(what, "paused", "is paused already", changed=is_new, paused=True, as_json=as_json)


@queues.command(epilog=options.example("windlass queues resume mail"))
def resume(
    queue: Queue = None,
    *,
    kind: Kind = None,
    key: Key = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Let workers start jobs of a queue, a kind or a key again."""
    what = _what(queue, kind, key)

    async def work(chosen: Windlass) -> bool:
        with options.usage():
            return await chosen.control.resume(**what)

    was_paused = target.visit(app, url, work)
    _tell(what, "resumed", "was not paused", changed=was_paused, paused=False, as_json=as_json)


@queues.command(epilog=options.example("windlass queues drain mail --timeout 5m"))
def drain(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)],
    *,
    timeout: Annotated[
        str | None, typer.Option(help="How long to wait: 90, 5m. For ever, if it is not given.")
    ] = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Pause a queue, and wait until none of its jobs runs; exit code 1 if some still do.

    It stays paused until `windlass queues resume`. Can be repeated.
    """
    running = 0

    async def work(chosen: Windlass) -> bool:
        with show.stderr().status(f"draining queue {inert(queue)}") as status:

            def told(number: int) -> None:
                nonlocal running
                running = number
                jobs = show.plural(number, "job")
                status.update(Text(f"draining queue {inert(queue)}: {jobs} running"))

            with options.usage():
                return await chosen.control.drain(queue, timeout=options.span(timeout), told=told)

    drained = target.visit(app, url, work)
    if as_json:
        show.document({"queue": queue, "drained": drained, "paused": True, "running": running})
    elif drained:
        show.say(f"queue {queue} drained; it is paused")
    if not drained:
        jobs = show.plural(running, "job")
        show.error(f"queue {queue} is not drained: {jobs} still running; it stays paused")
        raise typer.Exit(1)


async def _look(app: Windlass) -> tuple[list[Depth], Pauses]:
    pauses = await app.control.paused()
    return await _measure(app, pauses.queues), pauses


async def _measure(app: Windlass, paused: frozenset[str]) -> list[Depth]:
    """Count what is in the queues, by the store's clock."""
    counts = await app.store.counts()
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
        for queue in sorted({count.queue for count in counts} | paused)
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


def _what(queue: str | None, kind: str | None, key: str | None) -> dict[str, str]:
    given = {"queue": queue, "kind": kind, "key": key}
    return {what: name for what, name in given.items() if name is not None}


def _tell(
    what: dict[str, str], done: str, was_so: str, *, changed: bool, paused: bool, as_json: bool
) -> None:
    if as_json:
        show.document({**what, "paused": paused, "changed": changed})
        return
    for each, name in what.items():
        show.say(f"{each} {name} {done if changed else was_so}")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(queues, name="queues")
