"""Owns batches: jobs of one kind that wait for each other and share one call of their handler.

Each job stays a run of its own, with its slot, its timeout and its middleware; only the innermost
call is shared. So each job is settled, retried and cancelled by itself.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from windlass.core.claims.room import Pool
from windlass.core.errors import PermanentError
from windlass.core.failures.exceptions import is_a
from windlass.core.payloads.redaction import Redaction
from windlass.handlers.context import Context
from windlass.handlers.registry import Batch, Registration
from windlass.observability.log_context import begin
from windlass.process.tasks import GuardedTask
from windlass.process.waits import deliver

if TYPE_CHECKING:
    from windlass.worker.state import WorkerState

Elsewhere = Callable[[Callable[[], Any], Registration], Awaitable[Any]]


class _Place(Struct, eq=False):
    """A job in a batch, and the future that receives its share of the answer."""

    context: Context
    answer: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def take(self, share: Any) -> None:
        """Deliver the result or the error that the handler has for this job."""
        # The run has already ended if it timed out or was cancelled during the call.
        if is_a(share, BaseException):
            deliver(self.answer, None, share)
        else:
            deliver(self.answer, share, None)


class _Call(Struct, frozen=True):
    """One call for many jobs: the fields of its log lines, and the secrets to mask in them."""

    log_fields: dict[str, Any]
    redaction: Redaction


class BatchCollector:
    """Collects the jobs of a kind, and calls its handler when the batch is full or has waited
    enough.
    """

    def __init__(
        self,
        registration: Registration,
        batch: Batch,
        elsewhere: Elsewhere,
        state: WorkerState | None,
    ) -> None:
        self._registration = registration
        self._kind = registration.kind
        self._target = registration.target
        self._batch = batch
        self._elsewhere = elsewhere
        self._state = state
        self._waiting: list[_Place] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[GuardedTask] = set()

    async def __call__(self, context: Context) -> Any:
        """Join the next call, and return or raise this job's share of its answer."""
        place = _Place(context)
        self._waiting.append(place)
        slots = 1 if self._state is None else self._state.slots
        if len(self._waiting) >= min(self._batch.size, slots):
            self._go()
        elif self._timer is None:
            within = self._batch.timeout.total_seconds()
            self._timer = asyncio.get_running_loop().call_later(within, self._go)
        try:
            return await place.answer
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            raise

    def flush(self) -> bool:
        """Call the handler for the jobs that wait now; return whether there were any."""
        waits = bool(self._waiting)
        self._go()
        return waits

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        places, self._waiting = self._waiting, []
        if places:
            # In a context of its own: variables that the first job set are not for the others.
            call = GuardedTask(
                self._share(places),
                loop=asyncio.get_running_loop(),
                name=f"windlass-batch-{self._kind}",
                context=contextvars.Context(),
            )
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            for place in places:
                place.answer.add_done_callback(lambda _: self._fail_all(call, places))

    def _fail_all(self, call: GuardedTask, places: Sequence[_Place]) -> None:
        if all(place.answer.cancelled() for place in places):
            call.end()

    async def _share(self, places: Sequence[_Place]) -> None:
        first = places[0].context
        ids = [str(place.context.job_id) for place in places]
        fields = {"kind": self._kind, "worker_id": first.worker_id, "job_ids": ids}
        if len(queues := {place.context.queue for place in places}) == 1:
            fields["queue"] = queues.pop()
        redaction = first.redaction
        # The jobs share log lines and errors, so a secret of one job is masked for all of them.
        known = [text for place in places for text in place.context.run_state.secrets]
        if known:
            redaction = redaction.knowing(known)
            for place in places:
                place.context.run_state.redaction = redaction
        own = _Call(fields, redaction)
        begin(own)
        if isinstance(task := asyncio.current_task(), GuardedTask):
            task.owner = own
        items = [place.context.arguments for place in places]
        try:
            shares = self._shares(await self._call(first, items), len(places))
        except BaseException as error:  # noqa: BLE001 - it is the jobs', each of which hears of it.
            shares = [error] * len(places)
        for place, share in zip(places, shares, strict=True):
            place.take(share)

    async def _call(self, context: Context, items: list[Any]) -> Any:
        target = self._target
        if target.pool is Pool.LOOP:
            return await target.call_here(context, items)
        return await target.call_elsewhere(
            context, items, lambda call: self._elsewhere(call, self._registration)
        )

    def _shares(self, answer: Any, count: int) -> Sequence[Any]:
        if answer is None:
            return [None] * count
        if isinstance(answer, list | tuple) and len(answer) == count:
            return answer
        got = f"{len(answer)}" if isinstance(answer, list | tuple) else type(answer).__qualname__
        raise PermanentError(
            f"a batch of {self._kind!r} must return None or a list with one result for each of "
            f"its {count} jobs, got {got}"
        )
