"""Owns the diagnosis behind `windlass doctor`: what is so, what is wrong, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windlass.app import Windlass
from windlass.cli import checkup, show, target
from windlass.cli.discretion import discreet_group, redaction_of
from windlass.core.breaker_record import BreakerStatus
from windlass.core.errors import WindlassError
from windlass.core.job import ErrorGroup, Finding, Lane, Sweep, WorkerRecord
from windlass.core.pauses import resuming
from windlass.core.sample import is_draining
from windlass.core.states import State
from windlass.core.why import of_breaker
from windlass.store import Store

_LANES_TOLD = 20
_GROUPS_TOLD = 5
_GROUPS_SEEN = 1_000
_LATELY = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A setting, its value as it may be shown, and where that came from."""

    name: str
    value: str
    source: str


@dataclass(kw_only=True)
class Report:
    """What the doctor found. Problems make the exit code 1, notes do not."""

    app: str | None = None
    settings: list[Source] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def problem(self, problem: str, remedy: str) -> None:
        """Add something that is wrong."""
        self.problems.append(Finding(problem=problem, remedy=remedy))

    def note(self, problem: str, remedy: str) -> None:
        """Add something that may be meant so."""
        self.notes.append(Finding(problem=problem, remedy=remedy))


def load(reference: str | None, url: str | None, report: Report) -> Windlass | None:
    """Load the app and its settings, or find out why that cannot be done."""
    report.app = reference
    try:
        app = target.choose(reference, url)
        app.load_imports(app.settings.imports)
    except WindlassError as error:
        report.problem(str(error), "correct it; nothing else can be looked at before that")
        return None
    examine_settings(app, report)
    return app


def examine_settings(app: Windlass, report: Report) -> None:
    """Tell every setting and its source, and what is set in vain."""
    for name, setting in app.resolved.sources.items():
        report.settings.append(Source(name=name, value=setting.shown, source=setting.source))
    for warning in app.resolved.warnings:
        report.problem(warning, "correct the name, or unset it")
    for variable in app.resolved.unused:
        report.note(f"{variable} is set, and not used by this release", "nothing needs to be done")
    try:
        app.registry.rules()
    except WindlassError as error:
        report.problem(str(error), "define it, or correct the name")
    _examine_secrets(app, report)
    if report.app is not None:
        report.facts["kinds"] = ", ".join(sorted(app.registry)) or "none"
        if not list(app.registry):
            report.problem(
                f"no handler is registered in {report.app}",
                "import the modules that have them, there or by WINDLASS_IMPORTS",
            )


def _examine_secrets(app: Windlass, report: Report) -> None:
    """Find secrets that nobody here could encrypt, or open."""
    try:
        app.check_secrets()
    except WindlassError as error:
        problem, _, remedy = str(error).partition(": ")
        report.problem(problem, remedy)


async def examine_store(app: Windlass, report: Report) -> None:
    """Open the store and look around, unless to look would be to make or change it."""
    try:
        store = app.store
    except WindlassError as error:
        report.problem(str(error), "correct the URL")
        return
    report.facts["store"] = store.location
    if not store.capabilities.shared:
        report.note(
            "memory:// keeps its jobs inside one process",
            "run its worker there, with app.run_worker(), or use sqlite:///windlass.db",
        )
        return
    try:
        if await _is_ready(store, report):
            await store.open()
            await _examine_work(app, report)
    except WindlassError as error:
        report.problem(str(error), "as the message says")
    finally:
        await app.aclose()


async def _is_ready(store: Store, report: Report) -> bool:
    """Examine the schema without changing it; say whether there is a store to look into."""
    schema = await store.schema()
    if schema.found is None:
        told = report.note if store.capabilities.makes_itself else report.problem
        told(
            f"there is no store at {store.location} yet",
            "`windlass migrate` makes it; or is --url wrong?",
        )
        return False
    report.facts["schema"] = f"{schema.found} (this release has {schema.wanted})"
    if schema.found < schema.wanted:
        report.problem("the store has an older schema than this release", "windlass migrate")
    elif not schema.serves:
        report.problem("the store was made by a newer release", "upgrade windlass here")
    elif schema.found > schema.wanted:
        report.note("the store was made by a newer release, which serves this one", "upgrade soon")
    return schema.serves


async def _examine_work(app: Windlass, report: Report) -> None:
    report.problems.extend(await app.store.findings())
    workers, sweep = await app.store.workers(), await app.store.sweep()
    report.problems.extend(await checkup.clocks(app.store, workers))
    report.problems.extend(await checkup.broken_schedules(app.store))
    report.notes.extend(checkup.releases_apart(workers))
    paused = await app.control.paused()
    alive = [worker for worker in workers if worker.alive]
    report.facts["workers"] = f"{len(alive)} alive" + (
        f" ({', '.join(worker.info.id for worker in alive)})" if alive else ""
    )
    deaf = [worker.info.id for worker in alive if not worker.pulse.listening]
    if deaf and app.settings.listen_url != "off":
        report.problem(
            f"not told of new jobs, and polling for them: {', '.join(deaf)}",
            "the worker's log says why; behind a pooler set WINDLASS_LISTEN_URL, or set it to off",
        )
    for what, name in paused:
        report.note(f"{what} {name} is paused", resuming(what, name))
    waiting = [head.lane for head in sweep.heads if not any(paused.holding(head.lane))]
    _examine_waiting(waiting, alive, sweep, report)
    _examine_breakers(await app.control.breakers(), waiting, sweep, report)
    dead = sum(each.count for each in await app.store.counts() if each.state is State.DEAD)
    if dead:
        report.facts["dead"] = show.plural(dead, "job")
        redaction = redaction_of(app)
        groups = await app.control.error_groups(limit=_GROUPS_SEEN)
        _examine_dead([discreet_group(each, redaction) for each in groups], sweep.now, report)


def _examine_breakers(
    breakers: Sequence[BreakerStatus], waiting: Sequence[Lane], sweep: Sweep, report: Report
) -> None:
    """Say which breakers keep jobs from starting, for how long, and what waits for them."""
    for each in breakers:
        kinds = sorted({lane.kind for lane in waiting} & set(each.kinds))
        waits = f"jobs of kind {', '.join(kinds)} wait: " if kinds else ""
        for found in of_breaker(each, sweep.now):
            report.note(f"{waits}{found.told}", found.remedy)


def _examine_dead(groups: Sequence[ErrorGroup], now: datetime, report: Report) -> None:
    """Say of which errors jobs still die, the newest first."""
    growing = [each for each in groups if now - each.last_seen < _LATELY]
    growing.sort(key=lambda group: group.last_seen, reverse=True)
    for each in growing[:_GROUPS_TOLD]:
        what = each.error.type if each.error is not None else (each.reason or "no error")
        since = show.ago(each.first_seen, now)
        report.note(
            f"dead letters grow: {show.plural(each.count, 'job')} of kind {each.kind} died of "
            f"{what}, the first {since}, the last {show.ago(each.last_seen, now)}",
            f"windlass dead show {each.newest}; once it is mended, windlass dead redrive "
            + (f"--group {each.fingerprint}" if each.fingerprint else f"--kind {each.kind}"),
        )
    if len(growing) > _GROUPS_TOLD:
        others = show.plural(len(growing) - _GROUPS_TOLD, "other error")
        report.note(f"jobs still die of {others}", "windlass dead groups")


def _examine_waiting(
    waiting: Sequence[Lane], alive: Sequence[WorkerRecord], sweep: Sweep, report: Report
) -> None:
    """Find what waits in vain; a worker that drains starts nothing any more."""
    start = f"windlass worker {report.app or 'module:attribute'}"
    staying = [worker for worker in alive if not is_draining(worker)]
    if not staying:
        nobody = "all workers drain" if alive else "no worker is alive"
        if waiting:
            oldest = min(head.position for head in sweep.heads if head.lane in waiting)
            since = show.short(sweep.now - oldest)
            report.problem(f"jobs have been pending for {since}, and {nobody}", start)
        else:
            report.note(nobody, start)
        return
    unserved = {(lane.kind, lane.queue): lane for lane in _unserved(waiting, staying)}
    for lane in list(unserved.values())[:_LANES_TOLD]:
        told = f"jobs of kind {lane.kind} are pending in queue {lane.queue}"
        if any(worker.info.serves(lane) for worker in alive):
            report.problem(f"{told}, and all workers that serve them drain", start)
            continue
        report.problem(
            f"{told}, and no live worker serves them",
            "is the handler's module imported by the worker, and does it serve this queue "
            "(--queues, --exclude)?",
        )


def _unserved(waiting: Sequence[Lane], staying: Sequence[WorkerRecord]) -> Iterator[Lane]:
    for lane in waiting:
        if not any(worker.info.serves(lane) for worker in staying):
            yield lane
