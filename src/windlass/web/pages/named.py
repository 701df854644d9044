"""Owns the pages of one kind, one queue and one worker, by its name."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from windlass.core.jobs.queries import Page
from windlass.core.policies.limit import queue_limit
from windlass.core.search.errors import SearchError
from windlass.core.search.parser import parse
from windlass.core.stats.queue_stats import serves_queue
from windlass.core.values.names import is_builtin
from windlass.core.values.text import inert
from windlass.core.workers import WorkerRecord
from windlass.handlers.registry import Registration
from windlass.web.search import term, where_of
from windlass.web.site import access_of, reads_of, render, site_of

_ROWS = 10
_MAX_RUNNING = 50
_MAX_WORKERS = 20
_NEW_QUEUE = "its first job makes it known; see Queues"
_MAX_SHOWN = 60
"""Characters of an unknown name that the answer repeats."""


async def kind(request: Request) -> Response:
    """Show one kind: its figures, errors, limits and breakers, who runs it, its latest jobs."""
    reads, name = reads_of(request), _name(request)
    snapshot, stats = await reads.snapshot(), await reads.stats(kind=name)
    registered = _registered(request, name)
    workers = [each for each in await reads.workers() if name in each.info.kinds]
    schedules = [each for each in await reads.schedules() if each.kind == name]
    jobs = await _jobs(request, term("kind", name))
    is_paused = name in snapshot.pauses.kinds
    known = (stats.kinds, stats.errors, registered, workers, schedules, jobs.jobs, is_paused)
    if not any(known):
        raise _unknown("kind", name, "its first job makes it known; see Kinds")
    limits = _limits_of(request, name, workers)
    breakers = _breakers_of(request, name)
    context = {
        "name": name,
        "figures": next(iter(stats.kinds), None),
        "queues": stats.queues,
        "stats": stats,
        "errors": stats.errors[:_ROWS],
        "more_errors": max(len(stats.errors) - _ROWS, 0),
        "limits": [each for each in await reads.limits() if each.name in limits],
        "breakers": [
            each for each in await reads.breakers() if name in each.kinds or each.name in breakers
        ],
        "workers": _alive(workers),
        "schedules": schedules[:_ROWS],
        "registered": registered,
        "is_paused": is_paused,
        "can_enqueue": registered is not None and not is_builtin(name),
        "page": jobs,
        "commands": [
            site_of(request).command("stats", "--kind", name),
            site_of(request).command("jobs", "list", "--kind", name),
        ],
    }
    return render(request, "kind.html", context, now=stats.at)


async def queue(request: Request) -> Response:
    """Show one queue: depth, rates and what they need, its kinds, who serves it, its jobs."""
    reads, name = reads_of(request), _name(request)
    if not access_of(request).sees(name):
        raise _unknown("queue", name, _NEW_QUEUE)
    snapshot, stats = await reads.snapshot(), await reads.stats(queue=name)
    named = [each for each in await reads.workers() if name in each.info.queues]
    limits = [each for each in await reads.limits() if each.name == queue_limit(name)]
    jobs = await _jobs(request, term("queue", name))
    is_paused = name in snapshot.pauses.queues
    if not any((stats.queues, named, limits, jobs.jobs, is_paused, _is_home(request, name))):
        raise _unknown("queue", name, _NEW_QUEUE)
    context = {
        "name": name,
        "figures": next(iter(stats.queues), None),
        "kinds": stats.kinds[:_ROWS],
        "more_kinds": max(len(stats.kinds) - _ROWS, 0),
        "stats": stats,
        "errors": stats.errors[:_ROWS],
        "more_errors": max(len(stats.errors) - _ROWS, 0),
        "limits": limits,
        "workers": _alive(each for each in await reads.workers() if serves_queue(each, name)),
        "schedules": [
            each for each in await reads.schedules() if each.record.schedule.job.queue == name
        ][:_ROWS],
        "short": stats.short,
        "is_paused": is_paused,
        "page": jobs,
        "commands": [
            site_of(request).command("stats", "--queue", name),
            site_of(request).command("jobs", "list", "--queue", name),
        ],
    }
    return render(request, "queue.html", context, now=stats.at)


async def worker(request: Request) -> Response:
    """Show one worker: where it runs, what it serves and uses, its running and last jobs."""
    reads, name = reads_of(request), _name(request)
    found = next((each for each in await reads.workers() if each.info.id == name), None)
    if found is None:
        raise _unknown("worker", name, "one that is gone is remembered for a day; see Workers")
    own = term("worker", name)
    stats = (await reads.snapshot()).stats
    context = {
        "record": found,
        "info": found.info,
        "pulse": found.pulse,
        "figures": next((each for each in stats.workers if each.id == name), None),
        "running": await _jobs(request, f"{own} state:running", _MAX_RUNNING),
        "ended": await _jobs(request, f"{own} -state:running"),
        "short": stats.short,
    }
    return render(request, "worker.html", context, now=stats.at)


def _name(request: Request) -> str:
    """Return the name in an address; names that a path cannot hold are given as a parameter."""
    return request.path_params["name"] or request.query_params.get("name", "")


def _unknown(what: str, name: str, remedy: str) -> HTTPException:
    shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…"
    return HTTPException(404, f"there is no {what} {inert(shown)!r} here; {remedy}")


async def _jobs(request: Request, search: str, limit: int = _ROWS) -> Page:
    try:
        where = where_of(parse(search), access_of(request))
    except SearchError:
        return Page(jobs=(), after=None)  # The name is empty, or longer than any.
    return await reads_of(request).jobs(where, limit=limit, after=None)


def _alive(workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    return [each for each in workers if each.alive][:_MAX_WORKERS]


def _registered(request: Request, name: str) -> Registration | None:
    """Return the handler of a kind in this app; None: another app has it, if any."""
    if name not in reads_of(request).registered_kinds():
        return None
    return site_of(request).app.registry[name]


def _is_home(request: Request, queue_name: str) -> bool:
    """Return whether jobs of a kind go to this queue by default."""
    registry = site_of(request).app.registry
    return any(registry[each].queue == queue_name for each in reads_of(request).registered_kinds())


def _limits_of(request: Request, name: str, workers: Iterable[WorkerRecord]) -> set[str]:
    """Return the names of the limits of a kind, by this app's code and as workers report them."""
    own = _registered(request, name)
    declared = site_of(request).app.registry.limited_by(name, own.queue if own else "")
    reported = (each.info.uses.get(name, {}) for each in workers)
    return {
        f"kind:{name}",
        *(each for each, _ in declared),
        *(n for uses in reported for n in uses),
    }


def _breakers_of(request: Request, name: str) -> set[str]:
    rule = site_of(request).app.registry.rules().get(name)
    return {f"kind:{name}"} if rule is None else {rule.name}
