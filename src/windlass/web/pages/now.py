"""Owns the front page: what is wrong, the worst first, and the load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from windlass.core.alarms import find_alarms, waiting
from windlass.core.jobs.states import State
from windlass.core.stats.queue_stats import QueueFigures
from windlass.web.actions.remedies import for_alarm
from windlass.web.rendering.charts import marks_within
from windlass.web.site import reads_of, render

_ROWS = 8
_MAX_MARKS = 5


class _Total(NamedTuple):
    """How many jobs are in a state; `capped`: at least that many."""

    jobs: int
    capped: bool


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
        "waiting": _total(stats.queues, State.PENDING),
        "dead": _total(stats.queues, State.DEAD),
        "scheduled": _total(stats.queues, State.SCHEDULED),
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


def _total(queues: Iterable[QueueFigures], state: State) -> _Total:
    counts = [(each.jobs.get(state.value, 0), state.value in each.capped) for each in queues]
    return _Total(sum(jobs for jobs, _ in counts), any(capped for _, capped in counts))
