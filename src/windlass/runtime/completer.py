"""Owns the way of outcomes into the store: at once when idle, in groups under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from windlass.core.errors import StoreBusy, StoreUnavailable
from windlass.core.job import ErrorInfo, Job
from windlass.core.settle import Transition, finally_
from windlass.core.states import State
from windlass.observe.logs import get_logger
from windlass.observe.meters import Meters
from windlass.observe.running import fields_of
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.completer")
_ASIDE = 1.0


class Settlement(Struct, frozen=True, gc=False):
    """A job as it was claimed, what becomes of it, and the job with the steps that it came to."""

    job: Job
    transition: Transition
    job_now: Job


class Completer(Service):
    """Settles jobs. What waits while one group is being written makes the next group.

    A group whose fate is unknown, since the store went away, is sent again: the fence makes that
    safe.
    """

    name = "completer"
    prompted = True

    def __init__(
        self,
        store: Store,
        *,
        settled: Callable[[Settlement], None],
        fenced: Callable[[Settlement], None],
        meters: Meters,
    ) -> None:
        super().__init__()
        self._store = store
        self._settled = settled
        self._fenced = fenced
        self._meters = meters
        self._waiting: list[Settlement] = []
        self._under_way: list[Settlement] = []
        self._aside: list[Settlement] = []
        self._added = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was added is in the store."""
        return not self._waiting and not self._under_way and not self._aside

    def has(self, job: Job) -> bool:
        """Say whether an outcome of this very claim is on its way into the store."""
        mine = (job.id, job.token)
        on_their_way = (*self._waiting, *self._under_way, *self._aside)
        return any((each.job.id, each.transition.token) == mine for each in on_their_way)

    def add(self, job: Job, transition: Transition, job_now: Job | None = None) -> None:
        """Take what becomes of a job, to be written with the next group."""
        if not self._waiting:
            self._added.set()
        self._waiting.append(Settlement(job, transition, job_now or job))

    async def stop(self) -> None:
        """End once everything that was added is written."""
        self._added.set()
        await super().stop()
        while not self.is_idle:
            self._take_up()
            try:
                await self.flush()
            except StoreUnavailable as error:
                # Whoever stops us bounds how often this is tried.
                await asyncio.sleep(self._back_off(error))

    async def tick(self) -> float:
        if not self._waiting and not self._under_way and not self._stopping.is_set():
            self._added.clear()
            await self._added.wait()
        while self._waiting or self._under_way:
            await self.flush()
        return 0

    async def flush(self) -> None:
        """Write what waits."""
        if not self._under_way:
            self._under_way, self._waiting = self._waiting, []
        if self._under_way:
            await self._settle(self._under_way)
            self._under_way = []

    async def _settle(self, group: list[Settlement]) -> None:
        began = time.perf_counter()
        try:
            settled = await self._store.settle([each.transition for each in group])
        except StoreBusy as error:
            await self._set_aside(group, error)
            return
        except StoreUnavailable:
            self._meters.call_failed("settle")
            raise
        except Exception as error:
            log.exception("settle.refused", jobs=len(group))
            self._meters.call_failed("settle")
            await self._settle_singly(group, error)
            return
        took = time.perf_counter() - began
        # The next group goes before anybody is told of this one: the store shall not wait for us.
        self._loop.call_soon(self._tell, group, settled)
        self._meters.called("settle", took, len(group))

    def _tell(self, group: list[Settlement], settled: list[bool]) -> None:
        for each, is_settled in zip(group, settled, strict=True):
            (self._settled if is_settled else self._fenced)(each)

    async def _set_aside(self, group: list[Settlement], error: StoreBusy) -> None:
        """Let what somebody else holds, like a transaction of its own handler, hold up nobody."""
        if len(group) > 1:
            for each in group:
                await self._settle([each])
            return
        log.warning("settle.delayed", **fields_of(group[0].job), error=str(error))
        self._aside.append(group[0])
        asyncio.get_running_loop().call_later(_ASIDE, self._take_up)

    def _take_up(self) -> None:
        aside, self._aside = self._aside, []
        for each in aside:
            self.add(each.job, each.transition, each.job_now)

    async def _settle_singly(self, group: list[Settlement], error: Exception) -> None:
        """Find the transition that the store cannot take, and let its job die of that."""
        if len(group) > 1:
            for each in group:
                await self._settle([each])
            return
        job, refused, job_now = group[0].job, group[0].transition, group[0].job_now
        reason = f"its outcome could not be stored: {type(error).__qualname__}"
        dead = Transition(
            id=refused.id,
            token=refused.token,
            state=State.DEAD,
            failures=1,
            error=ErrorInfo(type=type(error).__qualname__, message=reason),
            reason=reason,
        )
        dead = finally_(job_now, dead)
        try:
            settled = await self._store.settle([dead])
        except StoreUnavailable:
            raise
        except Exception:
            # Kept, it would hold up everybody else's outcome; without one, the job is rescued.
            log.exception("settle.impossible", **fields_of(job))
            settled = [False]
        self._tell([Settlement(job, dead, job_now)], settled)
