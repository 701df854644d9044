"""Owns jobs of steps and undos whose process dies, once, at a point that their payload names."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from tests.torture.programs.handlers import YARD, ledger
from windlass import Context, PermanentError, Windlass, current_context, current_step
from windlass.core.jobs.job import Checkpoint
from windlass.core.jobs.settle import Transition
from windlass.core.workflows.step_log import Lived, Over, Undoing, read
from windlass.store.postgres import PostgresStore
from windlass.store.sqlite import SqliteStore

UNDONE, PLAIN = ("hotel", "flight"), "mail"


def die_at(point: str) -> None:
    """Kill this process the first time that it comes to the point where it shall die."""
    wanted = YARD / "failpoint"
    if wanted.exists() and wanted.read_text() == point:
        wanted.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def points_of(written: Sequence[str]) -> list[str]:
    """Name what is written: `done hotel`, `undoing`, `over`."""
    named = []
    for entry in map(read, written):
        tag = "over" if isinstance(entry, Over) else str(entry.__struct_config__.tag)
        nameless = isinstance(entry, Over | Undoing | Lived)
        named.append(tag if nameless else f"{tag} {getattr(entry, 'name', '')}")
    return named


def make_deadly(store: type[Any], write: str) -> None:
    """Let the process of a store die before, or after, it writes something of a job's steps."""
    inner = getattr(store, write)

    async def written(self: Any, moves: Sequence[Checkpoint | Transition]) -> list[bool]:
        points = [point for each in moves for point in points_of(each.steps)]
        points += [str(each.state) for each in moves if isinstance(each, Transition)]
        for point in points:
            die_at(f"before {point}")
        answer: list[bool] = await inner(self, moves)
        for point in points:
            die_at(f"after {point}")
        return answer

    setattr(store, write, written)


app = Windlass(max_retries=0)
for kind_of_store in (SqliteStore, PostgresStore):
    make_deadly(kind_of_store, "checkpoint")
    make_deadly(kind_of_store, "settle")


def effect(what: str) -> None:
    ctx, step = current_context(), current_step()
    ledger.write(f"{what} {step.name}|{step.key}|{step.finished}", ctx.job_id, ctx.attempt)
    die_at(f"in {what} {step.name}")


async def do() -> str:
    effect("do")
    return current_step().name


def undo() -> None:
    effect("undo")


@app.job
async def travel(ctx: Context, fails: bool) -> str:
    for name in UNDONE:
        assert await ctx.step(name, do, undo=undo) == name
    await ctx.step(PLAIN, do)
    if fails:
        raise PermanentError("no seats")
    return "travelled"
