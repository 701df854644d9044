"""Owns the app whose time the tests move, and what it ran."""

from __future__ import annotations

from typing import Any

from windlass import Windlass

app = Windlass("postgresql://nobody@nowhere.invalid/none")
"""On a database that does not exist: whoever touched it would fail."""


ran: list[Any] = []


@app.job
async def note(what: str) -> str:
    ran.append(what)
    return what
