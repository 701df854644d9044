"""Owns batches: jobs of one kind that wait for each other, and one call for all of them.

Each stays a run of its own, with its slot, its timeout and its middleware; only the innermost call
is shared. So each is settled, retried and cancelled for itself.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.context import Context
from windlass.core.errors import Permanent
from windlass.core.plan import Pool
from windlass.core.redaction import Redaction
from windlass.observe.running import running
from windlass.registry import Batch, Registration

Elsewhere = Callable[[Callable[[], Any], Registration], Awaitable[Any]]


@dataclass(eq=False)
class _Place:
    """A job in a batch, and where its share of the answer goes."""

    context: Context
    answer: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def take(self, share: Any) -> None:
        """Have what the handler returned for this job, or the error that it has for it."""
        if self.answer.done():
            return  # Its time was up, or it was cancelled, while the call was under way.
        if isinstance(share, BaseException):
            self.answer.set_exception(share)
        else:
            self.answer.set_result(share)


@dataclass(frozen=True)
class _Call:
    """One call for many jobs: what its lines carry, and what they must not show."""

    log_fields: dict[str, Any]
    redaction: Redaction


class Gathering:
    """Gathers the jobs of a kind, and calls its handler when there are enough, or it is time."""

    def __init__(
        self,
        registration: Registration,
        batch: Batch,
        elsewhere: Elsewhere,
        slots: Callable[[], int],
    ) -> None:
        self._registration = registration
        self._kind = registration.kind
        self._target = registration.target
        self._batch = batch
        self._elsewhere = elsewhere
        self._slots = slots
        self._waiting: list[_Place] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def __call__(self, context: Context) -> Any:
        """Take part in the next call, and return, or raise, this job's share of its answer."""
        place = _Place(context)
        self._waiting.append(place)
        if len(self._waiting) >= min(self._batch.size, self._slots()):
            self._go()
        elif self._timer is None:
            within = self._batch.within.total_seconds()
            self._timer = asyncio.get_running_loop().call_later(within, self._go)
        try:
            return await place.answer
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            raise

    def go_early(self) -> bool:
        """Call the handler for those who wait, since nobody else will come; say if any do."""
        waits = bool(self._waiting)
        self._go()
        return waits

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        places, self._waiting = self._waiting, []
        if places:
            # In a context of its own: what the first of them set is no business of the others.
            call = asyncio.get_running_loop().create_task(
                self._share(places),
                name=f"windlass-batch-{self._kind}",
                context=contextvars.Context(),
            )
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            for place in places:
                place.answer.add_done_callback(lambda _: self._end_in_vain(call, places))

    def _end_in_vain(self, call: asyncio.Task[None], places: Sequence[_Place]) -> None:
        """Cancel a call of which nobody wants the answer any more."""
        if all(place.answer.cancelled() for place in places):
            call.cancel()

    async def _share(self, places: Sequence[_Place]) -> None:
        first = places[0].context
        ids = [str(place.context.job_id) for place in places]
        told = {"kind": self._kind, "worker_id": first.worker_id, "job_ids": ids}
        if len(queues := {place.context.queue for place in places}) == 1:
            told["queue"] = queues.pop()
        redaction = first.redaction
        # What one of them may not show, none may: they share the lines, and the errors.
        known = [text for place in places for text in place.context.secrets]
        if known:
            redaction = redaction.knowing(known)
            for place in places:
                place.context.mask_by(redaction)
        running.set(_Call(told, redaction))
        items = [place.context.arguments for place in places]
        try:
            shares = self._shares(await self._call(first, items), len(places))
        except BaseException as error:  # noqa: BLE001 - it is the jobs', each of which hears of it.
            shares = [error] * len(places)
        for place, share in zip(places, shares, strict=True):
            place.take(share)

    async def _call(self, context: Context, items: list[Any]) -> Any:
        call = self._target.call
        if self._target.pool is Pool.LOOP:
            return await call(context, items)
        return await self._elsewhere(lambda: call(context, items), self._registration)

    def _shares(self, answer: Any, count: int) -> Sequence[Any]:
        if answer is None:
            return [None] * count
        if isinstance(answer, list | tuple) and len(answer) == count:
            return answer
        told = f"{len(answer)}" if isinstance(answer, list | tuple) else type(answer).__qualname__
        raise Permanent(
            f"a batch of {self._kind!r} returns None, or a list with one result for each of its "
            f"{count} jobs, and this returned {told}"
        )
