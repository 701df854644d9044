"""Owns the pages of flows: the list, and the graph of one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from windlass.app.masking import redaction_of
from windlass.app.workflows.flow_rows import rows_of
from windlass.app.workflows.flow_view import FlowView
from windlass.core.jobs.states import FINISHED
from windlass.core.payloads.masked_job import masked_texts
from windlass.core.workflows.flow_graph import FLOW_KIND, ids_of
from windlass.web.actions.remedies import for_job
from windlass.web.pages.jobs import id_in
from windlass.web.rendering.flow_chart import MAX_NODES, drawn
from windlass.web.site import reads_of, render, site_of, url

_LIMIT = 25


async def flows(request: Request) -> Response:
    """List flows: those under way first, then the newest."""
    reads = reads_of(request)
    after = id_in(request.query_params.get("after", ""))
    page = await reads.flows(_LIMIT, after=after)
    stats = (await reads.snapshot()).stats
    context = {
        "page": page,
        "after": after,
        "done": {view.job.id: _done(view) for view in page.views},
    }
    return render(request, "flows.html", context, now=stats.at)


async def flow(request: Request) -> Response:
    """Draw one flow, and list its jobs, those that are alike together."""
    site = site_of(request)
    reads = reads_of(request)
    job_id = (await reads.find_job(request.path_params["id"], kind=FLOW_KIND)).id
    view = await reads.flow(job_id)
    rows = rows_of(view)
    stats = (await reads_of(request).snapshot()).stats
    context = {
        "view": view,
        "job": masked_texts(view.job, redaction_of(site.app)),
        "rows": rows,
        "ids": [list(ids_of(job_id, row.numbers[row.word])) for row in rows],
        "picture": drawn(rows, job_id, url(request, "/jobs")),
        "hidden": max(len(rows) - MAX_NODES, 0),
        "done": _done(view),
        "buttons": list(for_job(view.job)),
    }
    return render(request, "flow.html", context, now=stats.at)


def _done(view: FlowView) -> tuple[int, int]:
    ended = sum(view.own_counts[state.value] for state in FINISHED)
    return ended, view.chart.size + len(view.chart.last)
