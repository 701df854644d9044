"""Owns the pages of bulk operations: the list, and how far one came."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from windlass.core.jobs.bulk import BulkState
from windlass.core.jobs.queries import described
from windlass.web.access.visible import visible_operation
from windlass.web.actions.bulk_operations import found_operation
from windlass.web.site import access_of, reads_of, render, see_other, site_of

_MAX_LISTED = 100


async def bulks(request: Request) -> Response:
    """List the bulk operations of the last 30 days, the newest first."""
    site, access = site_of(request), access_of(request)
    known = await reads_of(request).bulks()
    seen = [visible_operation(site.app, each, access) for each in known[:_MAX_LISTED]]
    stats = (await reads_of(request).snapshot()).stats
    context = {
        "operations": [(each, described(each.which)) for each in seen],
        "hidden": max(len(known) - _MAX_LISTED, 0),
    }
    return render(request, "bulks.html", context, now=stats.at)


async def bulk(request: Request) -> Response:
    """Show one bulk operation: how far it came, who started it, and why."""
    site, reads, given = site_of(request), reads_of(request), request.path_params["id"]
    found = found_operation(await reads.bulks(), given)
    if given != str(found.id):
        return see_other(request, f"/bulk/{found.id}")
    operation = visible_operation(site.app, found, access_of(request))
    is_served = any(worker.alive for worker in await reads.workers())
    context = {
        "operation": operation,
        "conditions": described(operation.which),
        "waits": operation.state is BulkState.RUNNING and not is_served,
    }
    return render(request, "bulk.html", context, now=(await reads.snapshot()).stats.at)
