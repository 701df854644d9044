"""The handlers: one that waits (async), one that computes (in a thread)."""

from __future__ import annotations

import asyncio
import os
import tempfile
import zlib

from windlass import Context, PermanentError, Retry, SyncContext, Windlass

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/thumbnails.db"))


@app.job(queue="images", retry=Retry.network(), timeout="10s")
async def fetch(ctx: Context, url: str) -> int:
    """Pretend to download a picture; the first try finds the line cut."""
    if not url.startswith("https://"):
        raise PermanentError(f"{url!r} is not a picture's address")
    if ctx.attempt == 1 and url.endswith("flaky.png"):
        raise ConnectionResetError("the line was cut")
    await asyncio.sleep(0.05)
    return zlib.crc32(url.encode())


@app.job(queue="images")
def shrink(ctx: SyncContext, checksum: int, width: int = 120) -> str:
    """Pretend to compute a thumbnail, and say how far it is."""
    for step in range(1, 5):
        ctx.raise_if_cancelled()
        ctx.progress(step / 4, f"{step * width // 4} columns done")
    return f"{checksum:08x}@{width}"
