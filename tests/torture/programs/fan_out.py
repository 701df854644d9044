"""Owns the handlers of flows under torture, and a worker that dies where it hears of their ends.

`TORTURE_DIES` says where and when: `before:3` is just before it hears for the third time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tests.torture.programs.handlers import NEVER, note
from windlass import Context, SyncContext, Windlass
from windlass.core.changes import Changes
from windlass.core.records import Json, News
from windlass.worker.services import flow_advancer as flows

app = Windlass()
WHERE, _, WHEN = os.environ.get("TORTURE_DIES", "never:0").partition(":")


@app.job
async def part(ctx: Context, number: int) -> int:
    note(ctx, "start")
    await asyncio.sleep(0.002)
    note(ctx, "end")
    return number


@app.job
async def join(ctx: Context) -> int:
    note(ctx, "start")
    total: int = sum(await ctx.results())
    note(ctx, "end")
    return total


@app.job(isolate=True, retry=NEVER)
def kill(ctx: SyncContext) -> None:
    """Take the child along in which it runs."""
    note(ctx, "start")
    _die()


@app.job(isolate=True)
def after(ctx: SyncContext) -> list[str]:
    """Ask for the results from a child."""
    return [type(each).__name__ for each in ctx.results()]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- a worker that dies ------------------------------------------------------------------------

_hear = flows.FlowAdvancer._hear
_decided = flows._decided
_times = {"before": 0, "within": 0, "behind": 0}


def _die_at(where: str) -> None:
    _times[where] += 1
    if (where, str(_times[where])) == (WHERE, WHEN):
        _die()


async def _hearing(self: flows.FlowAdvancer, topics: Sequence[str]) -> Sequence[str]:
    _die_at("before")
    left = await _hear(self, topics)
    _die_at("behind")
    return left


def _deciding(
    known_flows: Any, known: Any, records: Mapping[str, Json], news: Sequence[News], now: datetime
) -> Changes[Any]:
    changes = _decided(known_flows, known, records, news, now)
    if news:
        _die_at("within")
    return changes


flows.FlowAdvancer._hear = _hearing  # type: ignore[method-assign]
flows._decided = _deciding  # type: ignore[assignment]
