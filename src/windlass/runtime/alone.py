"""Owns how a coroutine runs inside a task that others use after it, as if it had one of its own.

A task for each of many short coroutines would take longer than they do.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any

Resume = Callable[..., Any]
"""Runs something in the context of a coroutine: what that sets in context variables stays there."""


def begin(coroutine: Coroutine[Any, Any, None]) -> tuple[Resume, Any] | None:
    """Let a coroutine run until it waits, and say how it goes on and for what; None if it ended."""
    resume = copy_context().run
    try:
        return resume, resume(coroutine.send, None)
    except StopIteration:
        return None


def go_on(
    coroutine: Coroutine[Any, Any, None], resume: Resume, waited_for: Any
) -> Generator[Any, Any, None]:
    """Wait for whatever a coroutine that has begun waits for, until it ends."""
    try:
        while True:
            try:
                answer = yield waited_for
            except BaseException as error:  # noqa: BLE001 - all of it is the coroutine's.
                waited_for = resume(coroutine.throw, error)
            else:
                waited_for = resume(coroutine.send, answer)
    except StopIteration:
        return
