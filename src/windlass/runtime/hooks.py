"""Owns what an app wants done around a worker's life, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from windlass.resources import Resources
from windlass.runtime.waits import within

_PATIENCE = 10.0
"""Seconds that a hook may take at the end."""
Hook = Callable[..., Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What the app wants to do around a worker's life."""

    on_start: Sequence[Hook] = ()
    on_shutdown: Sequence[Hook] = ()
    on_child_start: Sequence[Hook] = ()
    """These the worker only looks at: it is its children that call them."""

    async def start(self, resources: Resources) -> None:
        """Call what is to happen before the first job; whatever it raises keeps the worker away."""
        for hook in self.on_start:
            await _call(hook, resources)

    async def shut_down(self, resources: Resources) -> None:
        """Call what is to happen after the last job; nothing there keeps the worker from ending."""
        for hook in self.on_shutdown:
            name = getattr(hook, "__qualname__", repr(hook))
            await within(_PATIENCE, _call(hook, resources), hook=name)


async def _call(hook: Hook, resources: Resources) -> None:
    answer = hook(**resources.given(hook))
    if inspect.isawaitable(answer):
        await answer
