"""Owns `windlass stats`: what the load is and needs, and what workers recorded of the last hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import typer
from rich.console import Console
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options, show, target
from windlass.cli.figures import amount, figures_facts, percent, rate, seconds
from windlass.cli.listing import Column, Listing
from windlass.cli.screen.figures import several
from windlass.cli.sparks import ASCII, spark
from windlass.core.states import State
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures

_LABELS = {
    "arrival_rate": "arrival",
    "service_rate": "service",
    "drain_seconds": "drained in",
    "slots_needed": "slots needed",
    "utilisation": "slots",
}
_WIDEST = 24
_STATES = {State.PENDING: 0, State.RUNNING: 0, State.SCHEDULED: 4, State.DEAD: 3}


def stats(
    *,
    queue: options.OfQueue = None,
    kind: options.OfKind = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what comes, what leaves, how many slots that needs, and which errors there are.

    Rates are those of the last two minutes, everything else is about the last hour, as workers
    recorded it: nothing else has to run for that. With --queue or --kind, only what has to do with
    it.
    """

    async def work(chosen: Windlass) -> Stats:
        return await chosen.stats(queue=queue, kind=kind)

    found = target.visit(app, url, work)
    if as_json:
        show.document(figures_facts(found))
        return
    _capacity(found)
    _queues(found.queues)
    _kinds(found.kinds)
    _errors(found.errors, found.at)
    _workers(found.workers)
    _notes(found)
    if queue is not None and not found.queues:
        show.note(f"nothing is known of a queue {queue}; try: windlass queues list")
    elif kind is not None and not found.kinds:
        show.note(f"no run of kind {kind} is recorded of the last hour; try: windlass stats")


def _capacity(found: Stats) -> None:
    table, console = show.pairs(), show.stdout()
    used = f"{found.busy} of {found.slots} in use"
    table.add_row("slots", Text(f"{used}, {percent(found.utilisation)}" if found.slots else used))
    sign = "~" if found.estimated else ""
    for name, per_second, curve in (
        ("arrival", found.arrival_rate, found.arrivals),
        ("service", found.service_rate, found.services),
    ):
        told = Text("" if per_second is None else "jobs/s ", "dim")
        prefix = sign if name == "arrival" else ""
        table.add_row(name, rate(per_second, prefix) + " " + told + _curve(curve, console))
    waits = found.drain_seconds != 0
    table.add_row("drained in", seconds(found.drain_seconds) if waits else Text("nothing waits"))
    needed = amount(found.slots_needed)
    if found.slots_needed is not None and found.slots_needed > found.slots:
        needed.stylize("bold red")
    table.add_row("slots needed", needed)
    console.print(table)


def _queues(queues: Sequence[QueueFigures]) -> None:
    listing = Listing(
        Column("queue"),
        Column(""),
        *(Column(state.value, number=True, rank=rank) for state, rank in _STATES.items()),
        Column("oldest", number=True, rank=1),
        Column("in/s", number=True),
        Column("out/s", number=True),
        Column("drained in", number=True),
        Column("slots needed", number=True, rank=2),
        Column("slots", number=True, rank=2),
        Column("workers", number=True, rank=5),
        Column("in", rank=6),
    )
    console = show.stdout()
    for each in queues:
        listing.add(
            show.cell(each.name),
            Text("paused" if each.paused else "", "yellow"),
            *(_count(each, state) for state in _STATES),
            Text("") if each.oldest is None else seconds(each.oldest),
            rate(each.arrival_rate, "~" if each.estimated else ""),
            rate(each.service_rate),
            seconds(each.drain_seconds),
            amount(each.slots_needed),
            show.count(each.slots),
            show.count(each.workers),
            Text(_curve(each.arrivals, console), "dim"),
        )
    _print("queues", listing, queues)


def _kinds(kinds: Sequence[KindFigures]) -> None:
    listing = Listing(
        Column("kind"),
        Column("runs", number=True),
        Column("failed", number=True),
        Column("%", number=True, rank=1),
        Column("dead", number=True, rank=3),
        Column("runs/s", number=True, rank=2),
        Column("busy", number=True, rank=2),
        Column("p50", number=True),
        Column("p95", number=True),
        Column("p99", number=True),
        Column("wait p50", number=True, rank=5),
        Column("wait p95", number=True, rank=4),
        Column("wait p99", number=True, rank=5),
        Column("runs, last hour", rank=6),
    )
    console = show.stdout()
    for each in kinds:
        listing.add(
            show.cell(each.name),
            show.count(each.runs),
            show.count(each.failed, "red"),
            Text("" if each.error_rate is None else percent(each.error_rate)),
            show.count(each.dead, "red"),
            rate(each.rate),
            amount(each.busy),
            *(_percentile(each.durations.get(name)) for name in ("p50", "p95", "p99")),
            *(_percentile(each.waits.get(name)) for name in ("p50", "p95", "p99")),
            Text(_curve(each.history, console), "dim"),
        )
    _print("kinds", listing, kinds)


def _errors(errors: Sequence[ErrorFigures], now: datetime) -> None:
    listing = Listing(
        Column("group"),
        Column("failed", number=True),
        Column("dead", number=True),
        Column("kind"),
        Column("first", rank=3),
        Column("last", rank=1),
        Column("last hour", rank=2),
        Column("error", stretch=True),
    )
    console = show.stdout()
    for each in errors:
        listing.add(
            show.cell(each.group or "-"),
            show.count(each.count, "red"),
            show.count(each.dead, "red"),
            show.cell(each.kind),
            show.cell(show.ago(each.first_seen, now), "dim"),
            show.cell(show.ago(each.last_seen, now), "dim"),
            Text(_curve(each.history, console), "dim"),
            show.cell(each.error, "red"),
        )
    _print("errors", listing, errors)


def _workers(workers: Sequence[WorkerFigures]) -> None:
    listing = Listing(
        Column("worker"),
        Column("state"),
        Column("busy", number=True),
        Column("slots", number=True),
        Column("cpu", number=True),
        Column("memory", number=True, rank=1),
        Column("pool", number=True, rank=2),
        Column("processed", number=True, rank=2),
        Column("host", rank=4),
        Column("pid", number=True, rank=3),
        Column("queues", stretch=True),
    )
    for each in workers:
        pool = each.pool
        listing.add(
            show.cell(each.id),
            Text(each.state, "green" if each.state == "running" else "yellow"),
            show.count(each.busy),
            show.count(each.slots),
            Text(percent(each.cpu)),
            Text("" if each.memory is None else f"{each.memory / 2**20:,.0f} MiB"),
            Text("" if pool is None else f"{pool.in_use}/{pool.limit}"),
            show.count(each.processed),
            show.cell(each.host),
            show.cell(each.pid),
            show.cell(", ".join(each.queues) or "all"),
        )
    _print("workers", listing, workers)


def _print(title: str, listing: Listing, rows: Sequence[object]) -> None:
    if rows:
        show.say("")
        show.say(Text(title, "bold"))
        listing.print(show.stdout())


def _notes(found: Stats) -> None:
    """Say why what is not known is not, and what is to be done about it."""
    if reasons := list(_reasons(found)):
        show.say("")
    for each in reasons:
        show.note(each)
    if found.estimated:
        show.note("~ is estimated by the ids of new jobs: there are too many to count them all")
    if found.sample_age is not None:
        ago = show.short(timedelta(seconds=found.sample_age))
        show.note(f"queues are as a worker counted them {ago} ago")


def _reasons(found: Stats) -> Iterator[str]:
    """Say each reason once: that of the whole, or of all queues that have it, however many."""
    whole = _by_reason(found.unknown)
    alike: dict[tuple[str, str], list[str]] = {}
    for queue in found.queues:
        for why, labels in _by_reason(queue.unknown).items():
            if why not in whole:
                alike.setdefault((labels, why), []).append(queue.name)
    # That of the whole may be that of one queue, by whose name it begins.
    told = {f"{name}: {why}" for (_, why), names in alike.items() for name in names}
    yield from (f"{labels}: {why}" for why, labels in whole.items() if why not in told)
    yield from (f"{labels}: {several(names)}: {why}" for (labels, why), names in alike.items())


def _by_reason(unknown: Mapping[str, str]) -> dict[str, str]:
    reasons: dict[str, list[str]] = {}
    for figure, why in unknown.items():
        reasons.setdefault(why, []).append(_LABELS[figure])
    return {why: ", ".join(labels) for why, labels in reasons.items()}


def _count(queue: QueueFigures, state: State) -> Text:
    told = show.count(queue.jobs.get(state.value, 0), show.STATE_STYLES[state])
    return told + "+" if state.value in queue.capped else told


def _percentile(value: float | None) -> Text:
    return Text("") if value is None else seconds(value)


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass stats --queue mail --json"))(stats)


def _curve(values: Sequence[float], console: Console) -> str:
    drawn = spark(values, min(len(values), _WIDEST))
    return drawn.translate(ASCII) if console.options.ascii_only else drawn
