"""Owns the end of a worker that shall only work off what there is: when all of it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windlass.core.plan import Policies
from windlass.runtime.service import Service
from windlass.store import Store

_GLANCE = 0.01
_LOOK = 0.05


class Burst(Service):
    """Says so, by `done()`, once nothing runs here and nothing waits that could.

    `busy()` says whether something is under way here, `news()` whether something is to be heard of
    that may free jobs, `ended()` how many runs have ended. What is due later does not count as
    waiting.
    """

    name = "burst"

    def __init__(
        self,
        store: Store,
        *,
        policies: Callable[[], Policies],
        busy: Callable[[], bool],
        news: Callable[[], Awaitable[bool]],
        ended: Callable[[], int],
        rouse: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._policies = policies
        self._busy = busy
        self._news = news
        self._ended = ended
        self._rouse = rouse
        self._done = done

    async def tick(self) -> float:
        before = self._ended()
        if self._busy():
            return _GLANCE
        if await self._news() or await self._is_something_left():
            # Whoever claims may believe that there is nothing, and sleep.
            self._rouse()
            return _LOOK
        if self._busy() or self._ended() != before:
            # It was claimed before we could see it wait, and may wait again by now.
            return 0
        self._done()
        return _LOOK

    async def _is_something_left(self) -> bool:
        """Look afresh: what is believed may be older than what we wait for."""
        sweep = await self._store.sweep(fresh=True)
        is_due = sweep.next_due is not None and sweep.next_due <= sweep.now
        return is_due or any(self._policies().serves(head.lane) for head in sweep.heads)
