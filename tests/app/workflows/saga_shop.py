"""Owns the shop whose steps are undone in the tests of sagas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.app_on_store import in_state, serving
from windlass import Context, Retry, State, Windlass, current_step
from windlass.core.jobs.job import Job, Saga

AT_ONCE = Retry(max_retries=2, initial="1ms")


@dataclass
class Shop:
    """What the steps of a saga have done, and what their undos have."""

    did: list[str] = field(default_factory=list)
    undid: list[tuple[str, Any, bool]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    refuses: dict[str, int] = field(default_factory=dict)
    """How often an undo is to fail."""

    async def do(self, name: str) -> str:
        self.did.append(name)
        self.keys.append(current_step().key)
        return name.upper()

    def undo(self, name: str) -> None:
        step = current_step()
        if self.refuses.get(name, 0):
            self.refuses[name] -= 1
            raise ConnectionError(f"{name} cannot be undone")
        self.keys.append(step.key)
        self.undid.append((name, step.result, step.finished))

    async def reserve(self, ctx: Context, *names: str, retry: Retry = AT_ONCE) -> None:
        for name in names:
            await ctx.step(name, self.do, name, undo=self.undo, undo_retry=retry)


def ending(job: Job) -> tuple[State, str | None, Saga | None]:
    return job.state, job.reason, job.saga


async def run(app: Windlass, handler: Any, *states: State) -> Job:
    async with serving(app):
        return await in_state(await handler.aenqueue(), *states)
