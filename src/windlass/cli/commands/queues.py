"""Owns `windlass queues`: listing, pausing and resuming queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import completion, options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.jobs.states import WAITING, State
from windlass.core.policies.pauses import Pauses, resuming
from windlass.core.stats.depths import QueueCount
from windlass.core.values.durations import brief
from windlass.core.values.text import inert

queues = options.Commands("List, pause and resume queues.")
_RANKS = {State.CANCELLED: 2, State.COMPLETED: 1}
Queue = Annotated[
    str | None,
    typer.Argument(metavar="[QUEUE]", show_default=False, autocompletion=completion.queues),
]
Kind = Annotated[
    str | None,
    typer.Option("--kind", help="A kind, instead of a queue.", autocompletion=completion.kinds),
]
Key = Annotated[str | None, typer.Option("--key", help="A key, like a tenant, instead of a queue.")]


@dataclass(frozen=True, kw_only=True)
class Depth:
    """The counts of a queue."""

    queue: str
    paused: bool
    counts: dict[State, int]
    capped: frozenset[State]
    """The states of which it may have more jobs than were counted."""
    waits: timedelta | None


@queues.command("list", epilog=options.example("windlass queues list --json"))
def list_queues(*, target: options.Target, as_json: options.AsJson = False) -> None:
    """List queues: jobs by state, how long the oldest has waited, and whether it is paused."""
    depths, pauses = target.visit(_look)
    if as_json:
        also = {"kinds": sorted(pauses.kinds), "keys": sorted(pauses.keys)}
        show.document({"queues": [_facts(depth) for depth in depths], "paused": also})
        return
    if not depths and not pauses:
        show.note("no queue has jobs or is paused")
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
            *(_count(depth, state) for state in State),
            Text("" if depth.waits is None else brief(depth.waits)),
        )
    listing.print(show.stdout())


@queues.command(
    epilog=options.example(
        "windlass queues pause --kind send_email", "windlass queues pause mail --wait --timeout 5m"
    )
)
def pause(
    queue: Queue = None,
    *,
    kind: Kind = None,
    key: Key = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until no job of the queue runs.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(help="How long to wait: 90, 5m. Default: without limit.")
    ] = None,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Keep workers from starting jobs of a queue, a kind or a key.

    Running jobs continue, and enqueueing works. With --wait, exit code 1 if jobs of the queue still
    run when the time is up; it stays paused, and the command can be repeated.
    """
    what = _what(queue, kind, key)
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    if wait:
        if queue is None or len(what) > 1:
            raise typer.BadParameter("--wait needs a queue, and neither --kind nor --key")
        _pause_and_wait(queue, timeout, target=target, as_json=as_json)
        return

    async def work(chosen: Windlass) -> bool:
        with options.usage():
            return await chosen.control.apause(**what)

    is_new = target.visit(work)
    _tell(what, "paused", "is already paused", changed=is_new, paused=True, as_json=as_json)


def _pause_and_wait(
    queue: str, timeout: str | None, *, target: options.Target, as_json: bool
) -> None:
    running = 0

    async def work(chosen: Windlass) -> bool:
        with show.stderr().status(f"waiting for queue {inert(queue)}") as status:

            def progress(number: int) -> None:
                nonlocal running
                running = number
                jobs = show.plural(number, "job")
                status.update(Text(f"waiting for queue {inert(queue)}: {jobs} running"))

            with options.usage():
                span = options.span(timeout)
                return await chosen.control.apause_and_wait(queue, timeout=span, progress=progress)

    is_idle = target.visit(work)
    if as_json:
        show.document({"queue": queue, "idle": is_idle, "paused": True, "running": running})
    elif is_idle:
        show.say(f"queue {queue} paused; none of its jobs is running")
    if not is_idle:
        jobs = show.plural(running, "job")
        rest = f"{jobs} still running" if running else "workers may not have noticed it yet"
        show.error(f"queue {queue} is paused, but {rest}; repeat it with a longer --timeout")
        raise typer.Exit(1)


@queues.command(epilog=options.example("windlass queues resume mail"))
def resume(
    queue: Queue = None,
    *,
    kind: Kind = None,
    key: Key = None,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Let workers start jobs of a queue, a kind or a key again."""
    what = _what(queue, kind, key)

    async def work(chosen: Windlass) -> bool:
        with options.usage():
            return await chosen.control.aresume(**what)

    was_paused = target.visit(work)
    _tell(what, "resumed", "was not paused", changed=was_paused, paused=False, as_json=as_json)


async def _look(app: Windlass) -> tuple[list[Depth], Pauses]:
    pauses = await app.control.apaused()
    return await _measure(app, pauses.queues), pauses


async def _measure(app: Windlass, paused: frozenset[str]) -> list[Depth]:
    counts: dict[str, list[QueueCount]] = {queue: [] for queue in paused}
    for count in await app.store.counts():
        counts.setdefault(count.queue, []).append(count)
    now = (await app.store.sweep()).now
    return [_depth(queue, counts[queue], now, paused=queue in paused) for queue in sorted(counts)]


def _depth(queue: str, counts: Sequence[QueueCount], now: datetime, *, paused: bool) -> Depth:
    by_state = dict.fromkeys(State, 0)
    for count in counts:
        by_state[count.state] += count.count
    oldest = [each.oldest for each in counts if each.state in WAITING and each.oldest]
    return Depth(
        queue=queue,
        paused=paused,
        counts=by_state,
        capped=frozenset(each.state for each in counts if each.capped),
        waits=max((now - each for each in oldest if each <= now), default=None),
    )


def _count(depth: Depth, state: State) -> Text:
    style = show.STATE_STYLES[state]
    return show.count(depth.counts[state], style, capped=state in depth.capped)


def _facts(depth: Depth) -> facts.Facts:
    return {
        "queue": depth.queue,
        "paused": depth.paused,
        **{state.value: depth.counts[state] for state in State},
        "capped": [state.value for state in State if state in depth.capped],
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
