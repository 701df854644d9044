"""Owns `windlass stats`: the load, the capacity it needs, and the figures of the last hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from rich.console import Console
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.numbers import amount, percent, rate, seconds, share_of
from windlass.cli.output.sparklines import ASCII, spark
from windlass.cli.output.tables import Column, Listing
from windlass.core.documents import figures_facts
from windlass.core.jobs.states import State
from windlass.core.stats.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures
from windlass.core.values.durations import brief
from windlass.core.values.text import listed

_LABELS = {
    "arrival_rate": "arrival",
    "service_rate": "service",
    "seconds_to_empty": "empty in",
    "slots_needed": "slots needed",
    "utilisation": "slots",
}
_WIDEST = 24
_STATES = {State.PENDING: 0, State.RUNNING: 0, State.SCHEDULED: 4, State.DEAD: 3}

EXAMPLES = ("windlass stats --queue mail --json",)


def stats(
    *,
    queue: options.OfQueue = None,
    kind: options.OfKind = None,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """Show arrivals, departures, the slots they need, and the errors.

    Rates are those of the last two minutes, everything else is about the last hour, as workers
    recorded it: no other service is needed. With --queue or --kind, only related figures.
    """

    async def work(chosen: Windlass) -> Stats:
        return await chosen.astats(queue=queue, kind=kind)

    found = target.visit(work)
    if as_json:
        show.document(figures_facts(found))
        return
    _capacity(found)
    _queues(found.queues)
    _kinds(found.kinds)
    _errors(found.errors, found.at)
    _workers(found.workers, found.at)
    _notes(found)
    if queue is not None and not found.queues:
        show.note(f"there is no queue {queue}; try: windlass queues list")
    elif kind is not None and not found.kinds:
        show.note(f"no run of kind {kind} in the last hour; try: windlass stats")


def _capacity(found: Stats) -> None:
    table, console = show.pairs(), show.stdout()
    short = {each.pool for each in found.short}
    for name, used, size in (
        ("slots", found.busy, found.slots),
        ("threads", found.in_threads, found.threads),
        ("isolated_processes", found.in_isolated_processes, found.isolated_processes),
    ):
        if size or name == "slots":
            style = "bold red" if name in short else ""
            table.add_row(name.replace("_", " "), Text(_in_use(used, size), style))
    sign = "~" if found.estimated else ""
    for name, per_second, curve in (
        ("arrival", found.arrival_rate, found.arrivals),
        ("service", found.service_rate, found.services),
    ):
        unit = Text("" if per_second is None else "jobs/s ", "dim")
        prefix = sign if name == "arrival" else ""
        table.add_row(name, rate(per_second, prefix) + " " + unit + _curve(curve, console))
    waits = found.seconds_to_empty != 0
    table.add_row("empty in", seconds(found.seconds_to_empty) if waits else Text("nothing waits"))
    for name, needed, size in (
        ("slots", found.slots_needed, found.slots),
        ("threads", found.threads_needed, found.threads),
        ("isolated_processes", found.isolated_processes_needed, found.isolated_processes),
    ):
        if needed or name == "slots":
            cell = amount(needed)
            if needed is not None and needed > size:
                cell.stylize("bold red")
            table.add_row(f"{name.replace('_', ' ')} needed", cell)
    console.print(table)


def _in_use(used: int, size: int) -> str:
    return f"{used} of {size} in use" + (f", {percent(used / size)}" if size else "")


def _queues(queues: Sequence[QueueFigures]) -> None:
    listing = Listing(
        Column("queue"),
        Column(""),
        *(Column(state.value, number=True, rank=rank) for state, rank in _STATES.items()),
        Column("oldest", number=True, rank=1),
        Column("in/s", number=True),
        Column("out/s", number=True),
        Column("empty in", number=True),
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
            seconds(each.seconds_to_empty),
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
            show.count(each.dead, "red", capped=each.capped),
            show.cell(each.kind),
            show.cell(show.ago(each.first_seen, now), "dim"),
            show.cell(show.ago(each.last_seen, now), "dim"),
            Text(_curve(each.history, console), "dim"),
            show.cell(each.error, "red"),
        )
    _print("errors", listing, errors)


def _workers(workers: Sequence[WorkerFigures], now: datetime) -> None:
    listing = Listing(
        Column("worker"),
        Column("state"),
        Column("busy", number=True),
        Column("slots", number=True),
        Column("threads", number=True, rank=1),
        Column("isolated", number=True, rank=2),
        Column("cpu", number=True),
        Column("memory", number=True, rank=1),
        Column("pool", number=True, rank=2),
        Column("processed", number=True, rank=2),
        Column("seen", rank=3),
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
            Text(share_of(each.in_threads, each.threads)),
            Text(share_of(each.in_isolated_processes, each.isolated_processes)),
            Text(percent(each.cpu)),
            Text("" if each.memory is None else f"{each.memory / 2**20:,.0f} MiB"),
            Text("" if pool is None else f"{pool.in_use}/{pool.limit}"),
            show.count(each.processed),
            show.cell(show.ago(each.last_seen, now), "dim"),
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
    reasons = list(_reasons(found))
    if reasons or found.short:
        show.say("")
    for each in reasons:
        show.note(each)
    for short in found.short:
        show.note(f"{short.message}; {short.remedy}")
    if found.estimated:
        show.note("~ marks an estimate from the ids of new jobs, since there are too many to count")
    if found.sample_age is not None:
        ago = brief(timedelta(seconds=found.sample_age))
        what = "rates and counts" if found.count_age else "rates"
        show.note(f"{what} were sampled by a worker {ago} ago")


def _reasons(found: Stats) -> Iterator[str]:
    """Return each reason once, with all the queues that share it."""
    whole = _by_reason(found.unknown)
    alike: dict[tuple[str, str], list[str]] = {}
    for queue in found.queues:
        for why, labels in _by_reason(queue.unknown).items():
            if why not in whole:
                alike.setdefault((labels, why), []).append(queue.name)
    # The reason of the whole may be that of one queue, and then begins with its name.
    said = {f"{name}: {why}" for (_, why), names in alike.items() for name in names}
    yield from (f"{labels}: {why}" for why, labels in whole.items() if why not in said)
    yield from (f"{labels}: {listed(names, 3)}: {why}" for (labels, why), names in alike.items())


def _by_reason(unknown: Mapping[str, str]) -> dict[str, str]:
    reasons: dict[str, list[str]] = {}
    for figure, why in unknown.items():
        reasons.setdefault(why, []).append(_LABELS[figure])
    return {why: ", ".join(labels) for why, labels in reasons.items()}


def _count(queue: QueueFigures, state: State) -> Text:
    number, style = queue.jobs.get(state.value, 0), show.STATE_STYLES[state]
    return show.count(number, style, capped=state.value in queue.capped)


def _percentile(value: float | None) -> Text:
    return Text("") if value is None else seconds(value)


def _curve(values: Sequence[float], console: Console) -> str:
    drawn = spark(values, min(len(values), _WIDEST))
    return drawn.translate(ASCII) if console.options.ascii_only else drawn
