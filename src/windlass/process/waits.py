"""Owns waits that end in time: for the first of several events, and for a step of a shutdown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from windlass.core.failures.describe import describe
from windlass.core.failures.exceptions import is_a
from windlass.observability.logs import get_logger

T = TypeVar("T")
log = get_logger("windlass.worker")


async def first(*events: Awaitable[Any], patience: float) -> None:
    """Return when the first event has happened or the time is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def in_thread(work: Callable[[], T]) -> T:
    """Run a call that may wait for a store in a thread that does not keep the program from ending.

    The event loop's own threads would: a program waits for them at its end.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller, which waits, must hear of it.
            answer.set_exception(error)

    answer.set_running_or_notify_cancel()
    threading.Thread(target=run, name="windlass-call", daemon=True).start()
    return await asyncio.wrap_future(answer)


async def within(patience: float, what: str, step: Awaitable[Any], **fields: object) -> None:
    """Run a step of the shutdown, but never let it keep the process from ending."""
    limit = asyncio.timeout(patience)
    try:
        async with limit:
            await step
    except Exception as error:  # noqa: BLE001 - what is left to do is more important.
        why = f"{type(error).__qualname__}: {error}"
        if limit.expired():
            why = f"it did not end within {round(patience, 1):g} s"
        log.warning("shutdown.incomplete", step=what, error=why, **fields)


def deliver(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    """Set the result or the error of a call, unless the future is done already."""
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif is_a(error, StopIteration, GeneratorExit):
        # These would end the coroutine that awaits the future, instead of being raised in it.
        answer.set_exception(RuntimeError(f"the handler raised {describe(error)}"))
    else:
        answer.set_exception(error)
