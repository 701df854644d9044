"""The handler: makes a report, page by page."""

from __future__ import annotations

import asyncio
import os
import tempfile

from windlass import Context, Unique, Windlass

# WINDLASS_URL says where else the jobs may be.
jobs = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/reports.db"))


@jobs.job(name="report.render", queue="reports", unique=Unique("month"), timeout="5m")
async def render(ctx: Context, month: str, pages: int) -> str:
    """Make a report; who orders the same month meanwhile gets this job."""
    for page in range(1, pages + 1):
        await asyncio.sleep(0.01)
        ctx.progress(page / pages, f"page {page}")
        await ctx.stream(f"page {page} of {month}")
    return f"report of {month}, {pages} pages"
