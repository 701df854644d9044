"""Owns what is examined besides jobs: schedules, changed limits, and code that cannot serve."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from windlass.app.deploy_check.report import CheckFinding, CheckReport
from windlass.app.masking import redaction_of
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.policies.limit import OVERRIDE, queue_limit
from windlass.core.records import Json, RecordPage
from windlass.core.schedules.schedule import RECORD, read_record

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_CHUNK = 500
_OF_QUEUES = queue_limit("")


def examine_code(app: Windlass) -> Iterator[CheckFinding]:
    """Find reasons for which a worker would not start with this code."""
    for check in (app.check_secrets, app.registry.rules, app.registry.check_limits):
        try:
            check()
        except ConfigError as error:
            problem, _, remedy = str(error).partition("; ")
            yield CheckFinding(
                subject="code",
                name=app.home or "",
                problem=problem,
                remedy=remedy or "define it, or correct the name",
            )


async def examine_limits(app: Windlass) -> list[CheckFinding]:
    """Find limits that an operator has changed, and that the new code does not have."""
    changed = {name.removeprefix(OVERRIDE) for name in await app.store.records(OVERRIDE)}
    # An operator may give a limit to any queue.
    gone = {name for name in changed - set(app.registry.limits) if not name.startswith(_OF_QUEUES)}
    return [
        CheckFinding(
            subject="limit",
            name=name,
            problem=f"limit {name!r} was changed by an operator, and the new code does not "
            "define it: after the deploy it limits nothing",
            remedy=f"keep it in the code, or, if that is intended, windlass limits reset "
            f"{shlex.quote(name)}",
        )
        for name in sorted(gone)
    ]


async def examine_schedules(app: Windlass, report: CheckReport, limit: int | None) -> None:
    """Find schedules that the new code does not serve, or whose payload it cannot decode."""
    before: str | None = None
    while limit is None or report.schedules < limit:
        page = await app.store.records(RECORD, RecordPage(_CHUNK, before))
        for name, record in page.items():
            finding = _of_schedule(app, name.removeprefix(RECORD), record)
            if finding is not None:
                report.findings.append(finding)
        report.schedules += len(page)
        if len(page) < _CHUNK:
            return
        before = min(page)
    report.complete = False


def _of_schedule(app: Windlass, name: str, record: Json) -> CheckFinding | None:
    known = read_record(record)
    if known is None:
        problem = f"schedule {name!r} cannot be read by this release of windlass"
        return _finding(name, problem, "deploy a release that is at least as new as the one now")
    template = known.schedule.job
    if known.schedule.declared and name not in app.schedules.declared:
        return _finding(
            name,
            f"schedule {name!r} is part of the code that runs now, and not of the new code: no "
            "worker would tick it",
            f"keep it, or, if that is intended, windlass schedules remove {shlex.quote(name)} "
            "after the deploy",
        )
    if known.schedule.declared:
        return None  # Workers with the new code replace its payload.
    if template.kind not in app.registry:
        return _finding(
            name,
            f"schedule {name!r} enqueues kind {template.kind!r}, which has no handler in the new "
            "code",
            f"keep its handler, or windlass schedules remove {shlex.quote(name)}",
        )
    try:
        codec = app.registry[template.kind].target.codec
        codec.decode(template.payload.encode(), kind=template.kind)
    except PayloadInvalid as error:
        where = f"field {error.field!r}: " if error.field else ""
        why = redaction_of(app).text(f"{where}{error.reason}")
        return _finding(
            name,
            f"schedule {name!r} has a payload that the new code of {template.kind!r} cannot "
            f"decode: {why}",
            "let the handler accept it, or put the schedule again with another payload",
        )
    return None


def _finding(name: str, problem: str, remedy: str) -> CheckFinding:
    return CheckFinding(subject="schedule", name=name, problem=problem, remedy=remedy)
