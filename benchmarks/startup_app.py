"""Owns the smallest app that a worker can serve: what its start takes is Windlass's own."""

from __future__ import annotations

from windlass import Windlass

app = Windlass()


@app.job
async def noop() -> None:
    """Do nothing."""
