"""Owns the diagnosis behind `windlass doctor`: the facts, the problems, and how to fix them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from windlass.app.app import Windlass
from windlass.app.doctor import advice, fleet_checks
from windlass.app.masking import redaction_of
from windlass.core.claims.lanes import Sweep
from windlass.core.documents import Facts
from windlass.core.errors import WindlassError
from windlass.core.jobs.job import Lane
from windlass.core.jobs.queries import ErrorGroup, Finding
from windlass.core.payloads.masked_job import masked_group
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.pauses import resuming
from windlass.core.restored import RECORD as RESTORED
from windlass.core.stats.cluster_sample import is_draining
from windlass.core.stats.queue_capacity import slots_of
from windlass.core.stats.shortage import SHARED, shortages, size_of, used_of
from windlass.core.values.durations import ago, brief
from windlass.core.values.text import plural
from windlass.core.why.explain import of_breaker
from windlass.core.workers import WorkerRecord
from windlass.store import Store

_MAX_LANES = 20
_MAX_GROUPS = 5
_MAX_PARKED = 1_000
_MAX_COUNTED_GROUPS = 1_000
_LATELY = timedelta(minutes=5)
"""The age up to which deaths of jobs are reported as growing dead letters."""


class Source(Struct, frozen=True, kw_only=True):
    """A setting, its value, masked, and its source."""

    name: str
    value: str
    source: str


class Report(Struct, kw_only=True):
    """The findings. Problems make the exit code 1, warnings and notes do not."""

    app: str | None = None
    settings: list[Source] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def problem(self, problem: str, remedy: str) -> None:
        self.problems.append(Finding(problem=problem, remedy=remedy))

    def warning(self, problem: str, remedy: str) -> None:
        """Add something that delays or fails jobs, and may pass by itself."""
        self.warnings.append(Finding(problem=problem, remedy=remedy))

    def document(self) -> Facts:
        """Return the report for scripts."""
        return {
            "ok": not self.problems,
            "app": self.app,
            "settings": {
                each.name: {"value": each.value, "source": each.source} for each in self.settings
            },
            "facts": self.facts,
            "problems": [_facts(finding) for finding in self.problems],
            "warnings": [_facts(finding) for finding in self.warnings],
            "notes": [_facts(finding) for finding in self.notes],
        }

    def note(self, problem: str, remedy: str) -> None:
        """Add something that may be intended."""
        self.notes.append(Finding(problem=problem, remedy=remedy))


def _facts(finding: Finding) -> Facts:
    name = {"name": finding.name} if finding.name else {}
    return {"problem": finding.problem, "remedy": finding.remedy, **name}


def examine_settings(app: Windlass, report: Report) -> None:
    """Report every setting and its source, and settings without effect."""
    for name, setting in app.resolved.sources.items():
        report.settings.append(Source(name=name, value=setting.shown, source=setting.source))
    for warning in app.resolved.warnings:
        report.problem(warning, "correct the name, or unset it")
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
                "import the modules that define them, there or with WINDLASS_IMPORTS",
            )


def _examine_secrets(app: Windlass, report: Report) -> None:
    try:
        app.check_secrets()
    except WindlassError as error:
        said = str(error)
        problem, _, remedy = said.partition("; " if "; " in said else ": ")
        report.problem(problem, remedy)


async def examine_store(app: Windlass, report: Report) -> None:
    """Open the store and examine it, unless that would create or change it."""
    try:
        store = app.store
    except WindlassError as error:
        report.problems.append(advice.of_store(error, _source(app)))
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
        report.problems.append(advice.of_store(error, _source(app)))


def _source(app: Windlass) -> str:
    setting = app.resolved.sources.get("url")
    return "the default" if setting is None else setting.source


async def _is_ready(store: Store, report: Report) -> bool:
    schema = await store.schema()
    if schema.found is None:
        report_it = report.note if store.capabilities.makes_itself else report.problem
        report_it(
            f"there is no store at {store.location} yet",
            "create it with `windlass migrate`, or correct --url",
        )
        return False
    report.facts["schema"] = f"{schema.found} (this release has {schema.wanted})"
    if schema.found < schema.wanted:
        report.problem("the store has an older schema than this release", "windlass migrate")
    elif not schema.serves:
        report.problem("the store was migrated by a newer release", "upgrade windlass here")
    elif schema.found > schema.wanted:
        report.note(
            "the store was migrated by a newer release, which still supports this one",
            "upgrade soon",
        )
    return schema.serves


async def _examine_work(app: Windlass, report: Report) -> None:
    report.problems.extend(await app.store.findings())
    workers, sweep = await app.store.workers(), await app.store.sweep()
    report.problems.extend(await fleet_checks.clocks(app.store, workers))
    report.problems.extend(await fleet_checks.broken_schedules(app.store))
    report.notes.extend(fleet_checks.releases_apart(workers))
    paused = await app.control.apaused()
    alive = [worker for worker in workers if worker.alive]
    report.facts["workers"] = f"{len(alive)} alive" + (
        f" ({', '.join(worker.info.id for worker in alive)})" if alive else ""
    )
    if alive:
        report.facts["in use"] = _in_use(alive)
    deaf = [worker.info.id for worker in alive if not worker.pulse.listening]
    if deaf and app.settings.listen_url != "off":
        report.problem(
            f"workers without notifications, which poll for new jobs: {', '.join(deaf)}",
            "the worker's log has the cause; behind a pooler set WINDLASS_LISTEN_URL, or set it "
            "to off",
        )
    await _examine_restored(app, report)
    if (changed := await fleet_checks.lineages_apart(app.store)) is not None:
        report.warnings.append(changed)
    for what, name in paused:
        report.note(f"{what} {name} is paused", resuming(what, name))
    waiting = [head.lane for head in sweep.heads if not any(paused.holding(head.lane))]
    _examine_waiting(waiting, alive, sweep, report)
    for short in shortages(alive, waiting):
        report.warning(short.message, short.remedy)
    _examine_breakers(await app.control.abreakers(), waiting, sweep, report)
    # Not by counting all jobs: that would read millions of finished ones.
    groups = await app.control.aerror_groups(limit=_MAX_COUNTED_GROUPS)
    if groups:
        is_capped = groups.searched_to is not None or len(groups) == _MAX_COUNTED_GROUPS
        more = " or more" if is_capped else ""
        report.facts["dead"] = plural(sum(each.count for each in groups), "job") + more
        redaction = redaction_of(app)
        _examine_dead([masked_group(each, redaction) for each in groups], sweep.now, report)


async def _examine_restored(app: Windlass, report: Report) -> None:
    mark = (await app.store.records(RESTORED)).get(RESTORED)
    parked = [] if mark is None else await app.control.arestored(limit=_MAX_PARKED)
    if mark is not None and parked:
        more = " or more" if len(parked) == _MAX_PARKED else ""
        report.warning(
            f"{plural(len(parked), 'job')}{more} parked after a restore, at {mark.get('at')} by "
            f"{mark.get('by')}",
            "windlass restored list; then windlass restored release, or cancel",
        )


def _in_use(alive: Sequence[WorkerRecord]) -> str:
    used = {"slots": (sum(each.pulse.running for each in alive), sum(map(slots_of, alive)))}
    for pool in SHARED:
        sizes = sum(size_of(each, pool) or 0 for each in alive)
        used[pool.value] = sum(used_of(each, pool) for each in alive), sizes
    return ", ".join(f"{count} of {size} {name}" for name, (count, size) in used.items())


def _examine_breakers(
    breakers: Sequence[BreakerStatus], waiting: Sequence[Lane], sweep: Sweep, report: Report
) -> None:
    for each in breakers:
        kinds = sorted({lane.kind for lane in waiting} & set(each.kinds))
        waits = f"jobs of kind {', '.join(kinds)} wait: " if kinds else ""
        for found in of_breaker(each, sweep.now):
            report.warning(f"{waits}{found.message}", found.remedy)
        if each.forced == "closed":
            since = ago(each.history[-1].at, sweep.now) if each.history else "long ago"
            report.warning(
                f"breaker {each.name} was pinned closed by hand {since}: it stays closed whatever "
                "fails",
                f"windlass breakers auto {shlex.quote(each.name)}",
            )


def _examine_dead(groups: Sequence[ErrorGroup], now: datetime, report: Report) -> None:
    growing = [each for each in groups if now - each.last_seen < _LATELY]
    growing.sort(key=lambda group: group.last_seen, reverse=True)
    for each in growing[:_MAX_GROUPS]:
        what = each.error.type if each.error is not None else (each.reason or "no error")
        since = ago(each.first_seen, now)
        report.warning(
            f"dead letters are growing: {plural(each.count, 'job')} of kind {each.kind} died "
            f"of {what}, the first {since}, the last {ago(each.last_seen, now)}",
            f"windlass dead show {each.newest}; once it is fixed, windlass dead redrive "
            + (f"--group {each.fingerprint}" if each.fingerprint else f"--kind {each.kind}"),
        )
    if len(growing) > _MAX_GROUPS:
        others = plural(len(growing) - _MAX_GROUPS, "other error")
        report.warning(f"jobs are also dying of {others}", "windlass dead groups")


def _examine_waiting(
    waiting: Sequence[Lane], alive: Sequence[WorkerRecord], sweep: Sweep, report: Report
) -> None:
    start = f"windlass worker {report.app or 'module:attribute'}"
    staying = [worker for worker in alive if not is_draining(worker)]
    if not staying:
        nobody = "all workers are draining" if alive else "no worker is alive"
        if waiting:
            oldest = min(head.position for head in sweep.heads if head.lane in waiting)
            since = brief(sweep.now - oldest)
            report.problem(f"jobs have been pending for {since}, but {nobody}", start)
        else:
            report.note(nobody, start)
        return
    unserved = {(lane.kind, lane.queue): lane for lane in _unserved(waiting, staying)}
    for lane in list(unserved.values())[:_MAX_LANES]:
        pending = f"jobs of kind {lane.kind} are pending in queue {lane.queue}"
        if any(worker.info.serves(lane) for worker in alive):
            report.problem(f"{pending}, but all workers that serve them are draining", start)
            continue
        report.problem(
            f"{pending}, but no live worker serves them",
            "check that a worker imports the handler's module and serves this queue (--queues, "
            "--exclude)",
        )


def _unserved(waiting: Sequence[Lane], staying: Sequence[WorkerRecord]) -> Iterator[Lane]:
    for lane in waiting:
        if not any(worker.info.serves(lane) for worker in staying):
            yield lane
