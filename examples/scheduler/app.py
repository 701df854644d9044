"""Work that time starts: from code, and made at run time for each tenant."""

from __future__ import annotations

import os
import tempfile

from windlass import Context, Windlass

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/scheduler.db"))
SEEN: list[str] = []


@app.every("1s")
async def look_around() -> None:
    """Run every second, however many workers there are: once."""
    SEEN.append("looked around")


@app.every("1s", overlap="skip")
async def limp(ctx: Context) -> None:
    """Fail now and then; the next tick comes all the same."""
    SEEN.append("limped")
    if ctx.attempt == 1:
        raise ConnectionResetError("the line was cut")


@app.cron("0 7 * * MON-FRI", tz="Europe/Berlin")
async def digest() -> None:
    """Run at seven on weekdays, by the clocks on the walls of Berlin."""
    SEEN.append("digested")


@app.job
async def report(tenant: str) -> None:
    """Run for one tenant, when that tenant wants it: see `app.schedules.put`."""
    SEEN.append(f"reported to {tenant}")
