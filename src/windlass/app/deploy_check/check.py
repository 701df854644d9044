"""Owns the check before a deploy: does this code serve what is in the store?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.app.deploy_check.jobs import JobExamination
from windlass.app.deploy_check.records import examine_code, examine_limits, examine_schedules
from windlass.app.deploy_check.report import CheckFinding, CheckReport
from windlass.app.deploy_check.sample import Sample
from windlass.app.registration.importing import load_imports
from windlass.app.workflows import flow as flows
from windlass.app.workflows import pipeline as pipelines
from windlass.core.jobs.states import LIVE

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_MAX_COUNTED = 100_000


async def check_deploy(app: Windlass, *, limit: int | None) -> CheckReport:
    """Check an app against its store, which is neither created nor changed.

    About `limit` unfinished jobs are looked at; None: all of them. A store whose schema this
    release cannot use is not looked into.
    """
    load_imports(app.settings.imports)
    flows.register(app)
    pipelines.register(app)
    report = CheckReport(store=app.store.location)
    report.findings.extend(examine_code(app))
    outdated = await _examine_schema(app)
    if outdated is not None:
        report.findings.append(outdated)
        report.complete = False
        return report
    await app.store.open()
    await _examine_jobs(app, report, limit)
    await examine_schedules(app, report, limit)
    report.findings.extend(await examine_limits(app))
    return report


async def _examine_schema(app: Windlass) -> CheckFinding | None:
    schema = await app.store.schema()
    if schema.serves:
        return None
    is_older = schema.found is not None and schema.found < schema.wanted
    which = "older than" if is_older else "newer than, and not compatible with,"
    return CheckFinding(
        subject="schema",
        name=str(schema.found),
        problem=f"the store has schema {schema.found}, which is {which} schema {schema.wanted} of "
        "the new code's release; nothing else was looked at",
        remedy="run windlass migrate with the new release before its workers start, then check "
        "again"
        if is_older
        else "deploy a release that is at least as new as the one that migrated the store",
    )


async def _examine_jobs(app: Windlass, report: CheckReport, limit: int | None) -> None:
    counts = [each for each in await app.store.counts(most=_MAX_COUNTED) if each.state in LIVE]
    report.unfinished = sum(each.count for each in counts)
    report.capped = any(each.capped for each in counts)
    examination = JobExamination(app)
    sample = Sample(app.store, limit)
    async for job in sample.jobs():
        examination.add(job)
        report.looked_at += 1
    lanes = [head.lane for head in (await app.store.sweep()).heads]
    for lane in lanes:
        examination.add_lane(lane)
    if not sample.is_complete:
        async for job in sample.of_kinds({lane.kind for lane in lanes} - sample.kinds):
            examination.add(job)
            report.looked_at += 1
    report.complete = sample.is_complete
    report.findings.extend(examination.findings())
