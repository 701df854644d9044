"""Owns how a coroutine runs inside a task that others use after it, as if it had one of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any


class Alone:
    """Awaits a coroutine in a context of its own, and says so when it has to wait for something.

    A task for each of many short coroutines would take longer than they do. What they set in
    context variables stays theirs. `waits` is called once, before the first wait.
    """

    __slots__ = ("_coroutine", "_waits")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._waits = waits

    def __await__(self) -> Generator[Any, Any, None]:
        run = copy_context().run
        coroutine = self._coroutine
        try:
            waited_for = run(coroutine.send, None)
            self._waits()
            while True:
                try:
                    answer = yield waited_for
                except BaseException as error:  # noqa: BLE001 - all of it is the coroutine's.
                    waited_for = run(coroutine.throw, error)
                else:
                    waited_for = run(coroutine.send, answer)
        except StopIteration:
            return
