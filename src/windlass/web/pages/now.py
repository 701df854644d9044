"""Owns the front page: what is wrong, the worst first, and the load."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from windlass.core.alarms import find_alarms, waiting
from windlass.web.actions.remedies import for_alarm
from windlass.web.rendering.charts import marks_within
from windlass.web.site import reads_of, render

_ROWS = 8
_MAX_MARKS = 5


async def now(request: Request) -> Response:
    """Show alarms, throughput, queues, errors of the hour and workers."""
    reads = reads_of(request)
    snapshot = await reads.snapshot()
    stats = snapshot.stats
    queues = sorted(stats.queues, key=lambda each: (-waiting(each), each.name))
    points = max(len(stats.arrivals), len(stats.services))
    deploys = [(each.at, each.name) for each in await reads.deploys()]
    context = {
        "stats": stats,
        "marks": marks_within(points, stats.at, deploys)[:_MAX_MARKS],
        "alarms": [(each, list(for_alarm(each))) for each in find_alarms(stats, snapshot.pauses)],
        "waiting": sum(map(waiting, stats.queues)),
        "dead": sum(each.jobs.get("dead", 0) for each in stats.queues),
        "scheduled": sum(each.jobs.get("scheduled", 0) for each in stats.queues),
        "queues": queues[:_ROWS],
        "more_queues": max(len(queues) - _ROWS, 0),
        "errors": stats.errors[:_ROWS],
        "more_errors": max(len(stats.errors) - _ROWS, 0),
        "kinds": stats.kinds[:_ROWS],
        "more_kinds": max(len(stats.kinds) - _ROWS, 0),
        "workers": stats.workers[:_ROWS],
        "more_workers": max(len(stats.workers) - _ROWS, 0),
    }
    return render(request, "now.html", context, now=stats.at)
