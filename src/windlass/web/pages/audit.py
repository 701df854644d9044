"""Owns the page of the audit log: what operators did."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from windlass.core.audit import AuditPage
from windlass.web.access.visible import visible_entry
from windlass.web.site import access_of, render, site_of

_LIMIT = 50


async def audit(request: Request) -> Response:
    """List actions of operators, the newest first."""
    site = site_of(request)
    given = {name: request.query_params.get(name, "").strip() for name in ("by", "since", "after")}
    page, problem = AuditPage(entries=(), after=None), ""
    try:
        page = await site.reads.audit(
            since=given["since"] or None,
            by=given["by"] or None,
            limit=_LIMIT,
            after=given["after"] or None,
        )
    except ValueError as error:
        problem = str(error)
    now = (await site.reads.snapshot()).stats.at
    page = replace(
        page,
        entries=tuple(visible_entry(site.app, each, access_of(request)) for each in page.entries),
    )
    context = {"page": page, "by": given["by"], "since": given["since"], "problem": problem}
    return render(request, "audit.html", context, now=now, status=422 if problem else 200)
