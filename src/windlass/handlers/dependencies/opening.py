"""Owns the opening and closing of a run's dependencies around the call of its handler.

It is written once: in a handler's own thread `at_once` drives the same coroutines, which wait for
nothing there.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from windlass.handlers.context import Context
from windlass.handlers.dependencies.plan import Call, Plan
from windlass.handlers.dependencies.reading import Style
from windlass.handlers.sync_context import in_thread

Away = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Makes a call that may block."""
_Close = Callable[[BaseException | None], Awaitable[None]]


async def around(
    body: Callable[[], Awaitable[Any]],
    plan: Plan,
    numbers: Iterable[int],
    values: dict[int, Any],
    context: Context,
    away: Away,
) -> Any:
    """Open some dependencies of a run, call the body, and close them again, the last one first.

    An error of the body is raised in each generator; one that catches it does not make the run
    succeed. An error of a generator is the error of the run.
    """
    closes: list[_Close] = []
    try:
        for number in numbers:
            values[number] = await _open(plan.calls[number], values, context, away, closes)
        result = await body()
    except BaseException as error:
        trace = error.__traceback__
        await _close(closes, error)
        error.__traceback__ = trace  # Without the frames of generators that it passed through.
        raise
    await _close(closes, None)
    return result


async def new_thread(call: Callable[[], Any]) -> Any:
    """Make a call in a thread of its own, and wait for its end also when cancelled.

    The threads for `def` handlers may all be busy for long, and those of the event loop would keep
    the program from ending.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: Any, error: BaseException | None) -> None:
        if not answer.done():
            answer.set_result((value, error))

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:  # noqa: BLE001 - the run, which waits, must hear of it.
            error = raised
        with suppress(RuntimeError):  # The loop is closed: no run waits any more.
            loop.call_soon_threadsafe(deliver, value, error)

    threading.Thread(target=run, name="windlass-dependency", daemon=True).start()
    try:
        value, error = await asyncio.shield(answer)
    except asyncio.CancelledError:
        # What the thread opens has to be closed. A worker abandons a run that takes too long.
        await asyncio.wait({answer})
        raise
    if error is not None:
        raise error
    return value


async def here(call: Callable[[], Any]) -> Any:
    """Make a call in this thread."""
    return call()


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a dependency of a `def` handler waited in its thread")


async def _open(
    call: Call, values: dict[int, Any], context: Context, away: Away, closes: list[_Close]
) -> Any:
    dependency = call.dependency
    arguments = {name: values[number] for name, number in call.arguments.items()}
    if dependency.needs:
        arguments |= context.provided.given(dependency.function)
    if dependency.context is not None:
        own = context if dependency.style.is_async else in_thread(context)
        arguments[dependency.context] = own
    function = dependency.function
    match dependency.style:
        case Style.ASYNC_GENERATOR:
            opened = asynccontextmanager(function)(**arguments)
            value = await opened.__aenter__()
            closes.append(partial(_close_async, opened))
            return value
        case Style.GENERATOR:
            entered = contextmanager(function)(**arguments)
            # Both its halves in one context: it may take back a variable that it has set.
            half = contextvars.copy_context().run if away is new_thread else _call
            # Before it is opened: a thread finishes that also for a run that was cancelled.
            closes.append(partial(_close_generator, entered, half, away))
            return await away(partial(half, entered.__enter__))
        case Style.COROUTINE:
            return await function(**arguments)
        case Style.FUNCTION:
            return await away(partial(function, **arguments))


async def _close(closes: list[_Close], error: BaseException | None) -> None:
    """Close what is open. Raises: the last error of the closing, if there is another one."""
    current = error
    while closes:
        try:
            await closes.pop()(current)
        except BaseException as raised:  # noqa: BLE001 - the rest has to be closed as well.
            current = raised
    if current is not None and current is not error:
        raise current


async def _close_async(opened: Any, error: BaseException | None) -> None:
    await opened.__aexit__(*_parts(error))


async def _close_generator(
    entered: Any, half: Callable[..., Any], away: Away, error: BaseException | None
) -> None:
    # One that has not reached its `yield` closes nothing.
    if inspect.getgeneratorstate(entered.gen) == inspect.GEN_SUSPENDED:
        await away(partial(half, entered.__exit__, *_parts(error)))


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _parts(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
