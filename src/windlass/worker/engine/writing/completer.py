"""Owns the writing of outcomes to the store: at once when idle, in groups under load."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from windlass.core.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreForbidden,
    StoreUnavailable,
)
from windlass.core.jobs.job import ErrorInfo, Job
from windlass.core.jobs.settle import Transition, finally_
from windlass.core.jobs.states import State
from windlass.core.values.text import storable
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters
from windlass.process.service import PROBE_SECONDS
from windlass.store import Store
from windlass.worker.engine.writing.group_writer import GroupWriter
from windlass.worker.state import WorkerState

if TYPE_CHECKING:
    from windlass.worker.engine.engine import Engine

log = get_logger("windlass.completer")
_MAX_ERROR_LENGTH = 500
_LATER = (StoreBusy, SchemaMismatch, StoreForbidden)
"""Errors that are no fault of the job: its outcome is kept until the store takes it."""
_PAUSE_SECONDS = 0.1
"""Seconds between two attempts to write the last outcomes at a shutdown, if they are refused."""
_GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of results that one group may have; a store holds several copies of them."""


class Settlement(Struct, frozen=True, gc=False):
    """A claimed job, the transition it gets, and the job with the steps that its run recorded."""

    job: Job
    transition: Transition
    job_now: Job


class Completer(GroupWriter[Settlement]):
    """Settles jobs. Outcomes that arrive while one group is written form the next group.

    A group whose fate is unknown because the connection failed is sent again: the fence makes that
    safe.
    """

    name = "completer"
    longest_backoff = PROBE_SECONDS

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        state: WorkerState,
        meters: Meters,
    ) -> None:
        super().__init__(store)
        self._engine = engine
        self._state = state
        self._meters = meters
        self._bytes = 0
        self._delayed: set[tuple[UUID, int]] = set()
        self._is_failing = False

    @property
    def unwritten(self) -> int:
        """Number of outcomes that are not in the store yet."""
        return len(self._waiting) + len(self._under_way) + len(self._aside)

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed and is to be repeated."""
        return self._is_failing

    @property
    def delayed(self) -> int:
        """Number of outcomes that the store did not take yet: their rows are, or were, locked by
        another transaction, or a right or the schema is missing.
        """
        return len(self._delayed)

    def unwritten_jobs(self) -> list[Job]:
        """Return the jobs whose outcomes are not in the store yet."""
        return [each.job for each in self._unwritten()]

    def has(self, job: Job) -> bool:
        """Return whether an outcome of this claim is on its way to the store."""
        mine = (job.id, job.token)
        return any((each.job.id, each.transition.token) == mine for each in self._unwritten())

    def add(self, job: Job, transition: Transition | None, job_now: Job | None = None) -> None:
        """Write a transition with the next group; None means that the run has stored it already."""
        if transition is None:
            return
        if not self._waiting:  # Not by `_add`: this is on the way of every job.
            self._added.set()
        self._waiting.append(Settlement(job, transition, job_now or job))
        if transition.result is not None:
            self._bytes += len(transition.result)

    def _add(self, item: Settlement) -> None:
        self.add(item.job, item.transition, item.job_now)

    async def stop(self) -> None:
        """Stop once every outcome that was added is written."""
        await super().stop()
        while not self.is_idle:
            self._take_up()
            try:
                await self.flush()
            except StoreUnavailable as error:
                # The caller of stop() bounds how long this is tried.
                await self._wait_out(self._back_off(error))
            else:
                if self._errors:
                    self._errors = 0
                    self._outage.answered(self.name)
                if self._aside and not self._waiting:
                    await asyncio.sleep(_PAUSE_SECONDS)

    async def _write(self, group: list[Settlement]) -> None:
        try:
            await self._settle(group)
        except StoreUnavailable:
            self._is_failing = True
            raise
        if self._is_failing:
            self._is_failing = False
            self._state.claim_again.set()

    def _take_group(self) -> None:
        """Return the next group: the waiting outcomes, up to the limit of bytes."""
        if self._bytes <= _GROUP_BYTES:
            self._under_way, self._waiting = self._waiting, []
            self._bytes = 0
            return
        room, count = _GROUP_BYTES, 0
        for each in self._waiting:
            room -= len(each.transition.result or b"")
            if room < 0 and count:
                break
            count += 1
        self._under_way, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= sum(len(each.transition.result or b"") for each in self._under_way)

    async def _settle(self, group: list[Settlement]) -> None:
        began = time.perf_counter()
        try:
            settled = await self._store.settle([each.transition for each in group])
        except _LATER as error:
            await self._delay(group, error)
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
        # The next group is sent before these answers are handled, so that the store is never idle.
        self._loop.call_soon(self._handle_answers, group, settled)
        self._meters.called("settle", took, len(group))

    async def _settle_part(self, part: list[Settlement]) -> None:
        """Settle a part of the group; if the store fails later, this part is not sent again."""
        await self._settle(part)
        done = set(map(id, part))
        self._under_way = [each for each in self._under_way if id(each) not in done]

    def _handle_answers(self, group: list[Settlement], settled: list[bool]) -> None:
        if self._delayed:
            self._delayed -= {(each.transition.id, each.transition.token) for each in group}
            self._state.claim_again.set()
        taken, rejected = self._engine.settled, self._engine.fenced
        for settlement, is_settled in zip(group, settled, strict=True):
            (taken if is_settled else rejected)(settlement)

    async def _delay(self, group: list[Settlement], error: StoreError) -> None:
        """Set aside the outcomes of a group that the store does not take now, and write the others.

        Their rows are locked, for example by a transaction of their handler; or a right is missing,
        which may be one that only jobs with a certain option need.
        """
        if len(group) > 1:
            for each in group:
                await self._settle_part([each])
            return
        claim = group[0].transition.id, group[0].transition.token
        if claim not in self._delayed:
            log.warning("settle.delayed", **fields_of(group[0].job), error=str(error))
        self._delayed.add(claim)
        self._set_aside(group[0])

    async def _settle_singly(self, group: list[Settlement], error: Exception) -> None:
        """Settle the jobs one by one, and dead-letter the job whose transition the
        store rejects.
        """
        if len(group) > 1:
            half = len(group) // 2
            await self._settle_part(group[:half])
            await self._settle_part(group[half:])
            return
        job, refused, job_now = group[0].job, group[0].transition, group[0].job_now
        said = storable(str(error), _MAX_ERROR_LENGTH)
        dead = Transition(
            id=refused.id,
            token=refused.token,
            state=State.DEAD,
            failures=1,
            error=ErrorInfo(type=type(error).__qualname__, message=said),
            reason=f"its outcome could not be stored: {said or type(error).__qualname__}",
        )
        dead = finally_(job_now, dead)
        try:
            settled = await self._store.settle([dead])
        except StoreUnavailable:
            raise
        except Exception:
            # Dropped, or it would block every other outcome; the job is rescued when its lease
            # ends.
            log.exception("settle.impossible", **fields_of(job))
            settled = [False]
        self._handle_answers([Settlement(job, dead, job_now)], settled)
