"""Owns the way of outcomes into the store: at once when idle, in groups under load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windlass.core.errors import StoreUnavailable
from windlass.core.job import ErrorInfo
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.observe.logs import get_logger
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.completer")


class Completer(Service):
    """Settles jobs. What waits while one group is being written makes the next group.

    A group whose fate is unknown, since the store went away, is sent again: the fence makes that
    safe.
    """

    name = "completer"

    def __init__(self, store: Store, *, fenced: Callable[[Transition], None]) -> None:
        super().__init__()
        self._store = store
        self._fenced = fenced
        self._waiting: list[Transition] = []
        self._under_way: list[Transition] = []
        self._added = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was added is in the store."""
        return not self._waiting and not self._under_way

    def add(self, transition: Transition) -> None:
        """Take a transition, to be written with the next group."""
        self._waiting.append(transition)
        self._added.set()

    async def stop(self) -> None:
        """End once everything that was added is written."""
        self._added.set()
        await super().stop()
        while not self.is_idle:
            try:
                await self.flush()
            except StoreUnavailable as error:
                # Whoever stops us bounds how often this is tried.
                await asyncio.sleep(self._back_off(error))

    async def tick(self) -> float:
        if self.is_idle and not self._stopping.is_set():
            self._added.clear()
            await self._added.wait()
        await self.flush()
        return 0

    async def flush(self) -> None:
        """Write what waits."""
        if not self._under_way:
            self._under_way, self._waiting = self._waiting, []
        if self._under_way:
            await self._settle(self._under_way)
            self._under_way = []

    async def _settle(self, group: list[Transition]) -> None:
        try:
            settled = await self._store.settle(group)
        except StoreUnavailable:
            raise
        except Exception as error:
            log.exception("settle.refused", jobs=len(group))
            await self._settle_singly(group, error)
            return
        for transition, is_settled in zip(group, settled, strict=True):
            if not is_settled:
                self._fenced(transition)

    async def _settle_singly(self, group: list[Transition], error: Exception) -> None:
        """Find the transition that the store cannot take, and let its job die of that."""
        if len(group) > 1:
            for transition in group:
                await self._settle([transition])
            return
        (refused,) = group
        reason = f"its outcome could not be stored: {type(error).__qualname__}"
        dead = Transition(
            id=refused.id,
            token=refused.token,
            state=State.DEAD,
            failures=1,
            error=ErrorInfo(type=type(error).__qualname__, message=reason),
            reason=reason,
        )
        try:
            await self._store.settle([dead])
        except StoreUnavailable:
            raise
        except Exception:
            # Kept, it would hold up everybody else's outcome; without one, the job is rescued.
            log.exception("settle.impossible", job_id=refused.id)
