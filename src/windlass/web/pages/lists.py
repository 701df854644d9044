"""Owns the pages that are one list: errors, kinds, queues, workers, schedules, limits, store."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from windlass.core.alarms import waiting
from windlass.core.deploys import DeployMark, find_mark, is_new_since
from windlass.core.errors import ConfigError
from windlass.core.schedules.status import upcoming
from windlass.core.stats.error_stats import MOST
from windlass.core.stats.stats import ErrorFigures
from windlass.core.values.durations import duration
from windlass.web.live.reads import MAX_COMPARED
from windlass.web.search import term
from windlass.web.site import reads_of, render

_MAX_UPCOMING = 3
_MAX_DEPLOYS = 6
_MAX_ROWS = 200
"""Rows of a table; those beyond are counted."""


async def errors(request: Request) -> Response:
    """Show errors by their fingerprints, of all kinds or of one; or only those that are new."""
    reads = reads_of(request)
    kind = request.query_params.get("kind", "")
    since = request.query_params.get("since", "").strip()
    deploy = request.query_params.get("deploy", "")
    # What is new, or of one kind, may be rare: more errors are looked at than are listed.
    most = MAX_COMPARED if since or deploy else MOST
    stats, deploys = await reads.stats(kind=kind or None, most_errors=most), await reads.deploys()
    problem, found = "", list(stats.errors)
    try:
        border = stats.at - duration(since, "since") if since else None
        mark = find_mark(deploys, deploy) if deploy else None
        found = [
            each for each in found if _is_new(each, border) and is_new_since(each.first_seen, mark)
        ]
    except (ValueError, ConfigError) as error:
        problem = str(error)
    context = {
        "errors": found[:MOST],
        "may_be_more": len(found) >= MOST,
        "kind": kind,
        "since": since,
        "deploy": deploy,
        "deploys": _latest(deploys),
        "problem": problem,
        "search_term": term,
        "searched_to": stats.errors_searched_to,
    }
    return render(request, "errors.html", context, now=stats.at, status=422 if problem else 200)


def _latest(deploys: list[DeployMark]) -> list[DeployMark]:
    """Return the latest mark of each name, of the newest deploys."""
    known: dict[str, DeployMark] = {}
    for mark in deploys:
        known.setdefault(mark.name, mark)
    return list(known.values())[:_MAX_DEPLOYS]


def _is_new(error: ErrorFigures, border: datetime | None) -> bool:
    return border is None or (error.first_seen is not None and error.first_seen >= border)


async def kinds(request: Request) -> Response:
    """Show the kinds: runs, failures, durations and waits of the last hour."""
    reads = reads_of(request)
    snapshot = await reads.snapshot()
    seen = {each.name for each in snapshot.stats.kinds}
    idle = sorted(
        name
        for name in reads.registered_kinds()
        if name not in seen and not name.startswith("windlass.")
    )
    context = {
        "kinds": snapshot.stats.kinds[:_MAX_ROWS],
        "more": max(len(snapshot.stats.kinds) - _MAX_ROWS, 0),
        "idle": idle[:_MAX_ROWS],
        "more_idle": max(len(idle) - _MAX_ROWS, 0),
        "paused": snapshot.pauses.kinds,
    }
    return render(request, "kinds.html", context, now=snapshot.stats.at)


async def queues(request: Request) -> Response:
    """Show the queues: depth, age, rates, when each is empty, and what is not known."""
    snapshot = await reads_of(request).snapshot()
    stats = snapshot.stats
    # Of too many, those in which most jobs wait.
    full = sorted(stats.queues, key=lambda each: -waiting(each))[:_MAX_ROWS]
    context = {
        "stats": replace(stats, queues=tuple(sorted(full, key=lambda each: each.name))),
        "more": len(stats.queues) - len(full),
        "pauses": snapshot.pauses,
    }
    return render(request, "queues.html", context, now=stats.at)


async def workers(request: Request) -> Response:
    """Show the workers: slots, CPU, memory, connections; those that have gone below."""
    reads = reads_of(request)
    stats = (await reads.snapshot()).stats
    known = await reads.workers()
    context = {
        "stats": replace(stats, workers=stats.workers[:_MAX_ROWS]),
        "more": max(len(stats.workers) - _MAX_ROWS, 0),
        "gone": [each for each in known if not each.alive][:50],
        "records": {each.info.id: each for each in known},
    }
    return render(request, "workers.html", context, now=stats.at)


async def schedules(request: Request) -> Response:
    """Show the schedules: when each ticks next, and its last job."""
    found = await reads_of(request).schedules()
    listed = found[:_MAX_ROWS]
    now = found[0].now if found else None
    context = {
        "schedules": listed,
        "more": len(found) - len(listed),
        "upcoming": {each.name: upcoming(each, _MAX_UPCOMING) for each in listed if each.next},
    }
    return render(request, "schedules.html", context, now=now)


async def limits(request: Request) -> Response:
    """Show limits and breakers: what is in use, what they hold back, and the levers."""
    reads = reads_of(request)
    stats = (await reads.snapshot()).stats
    context = {"limits": await reads.limits(), "breakers": await reads.breakers()}
    return render(request, "limits.html", context, now=stats.at)


async def store(request: Request) -> Response:
    """Show what `windlass doctor` finds: problems with remedies, facts and settings."""
    report = await reads_of(request).doctor()
    settings = sorted(report.settings, key=lambda each: (each.source == "default", each.name))
    return render(request, "store.html", {"report": report, "settings": settings})
