"""The handlers: one splits a file, many load its parts, one adds up what they found."""

from __future__ import annotations

import csv
import os
import tempfile
import time
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from windlass import Context, SyncContext, Windlass

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/import.db"))
PART = 100
"""Lines that one job loads."""
PACE = 0.01
"""Seconds that a line takes, as it would to write it into a database."""


@dataclass
class Part:
    """What came out of a part of the file."""

    rows: int
    total: Decimal
    bad_lines: list[int]


@app.job(name="import.start")
async def start(ctx: Context, path: str) -> str:
    """Enqueue a job for each part of a file and one after all of them; return the id of that."""
    lines = len(Path(path).read_text("utf-8").splitlines()) - 1  # noqa: ASYNC240
    flow = app.flow(f"import {Path(path).name}")
    parts = [flow.add(load_part.draft(path, first, PART)) for first in range(0, lines, PART)]
    last = flow.add(finish.draft(Path(path).name), after=parts)
    await flow.aenqueue()
    ctx.log.info("import.started", parts=len(parts))
    return str(last.id)


@app.job(name="import.part", max_retries=3, timeout="5m")
def load_part(ctx: SyncContext, path: str, first: int, count: int) -> Part:
    """Load some lines of the file, and report how far it is."""
    part = Part(rows=0, total=Decimal(0), bad_lines=[])
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = [row for number, row in enumerate(csv.DictReader(file)) if number >= first][:count]
    for number, row in enumerate(rows):
        ctx.raise_if_cancelled()
        time.sleep(PACE)
        try:
            part.total += Decimal(row["amount"])
            part.rows += 1
        except InvalidOperation:
            part.bad_lines.append(first + number + 2)  # As an editor counts, with the heading.
        ctx.progress((number + 1) / len(rows), f"line {first + number + 2}")
    return part


@app.job(name="import.finish")
async def finish(ctx: Context, name: str) -> str:
    """Add up the parts; runs once, when the last of them has ended."""
    parts: list[Part] = await ctx.results()
    rows, total = sum(part.rows for part in parts), sum(part.total for part in parts)
    bad = [line for part in parts for line in part.bad_lines]
    return f"{name}: {rows} orders of {total} in {len(parts)} parts; bad lines: {bad}"
