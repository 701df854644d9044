"""Owns the hooks of an app around a worker's life, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from windlass.handlers.middleware import Callbacks, Middleware
from windlass.handlers.provided import Provided, Providers, needs_of
from windlass.handlers.provided.injection import refuse_dependencies
from windlass.handlers.registry import Registry
from windlass.process.waits import within

_SHUTDOWN_HOOK_SECONDS = 10.0
"""Seconds that a hook may take when the worker ends."""
Hook = Callable[..., Awaitable[None] | None]


class Hooks(Struct, frozen=True, kw_only=True):
    """The hooks that an app has registered around a worker's life."""

    on_start: Sequence[Hook] = ()
    on_shutdown: Sequence[Hook] = ()
    on_child_start: Sequence[Hook] = ()
    """Called by the worker's child processes; the worker itself only checks them."""

    async def start(self, provided: Provided) -> None:
        """Call the hooks that run before the first job; an error there stops the worker from
        starting.
        """
        for hook in self.on_start:
            await _call(hook, provided)

    async def shut_down(self, provided: Provided) -> None:
        """Call the hooks that run after the last job; an error there does not stop the worker from
        ending.
        """
        for hook in self.on_shutdown:
            name = getattr(hook, "__qualname__", repr(hook))
            await within(_SHUTDOWN_HOOK_SECONDS, "on_shutdown", _call(hook, provided), hook=name)


async def _call(hook: Hook, provided: Provided) -> None:
    answer = hook(**provided.given(hook))
    if inspect.isawaitable(answer):
        await answer


def check_needs(
    providers: Providers,
    *,
    registry: Registry,
    middleware: Iterable[Middleware],
    hooks: Iterable[Callable[..., Any]],
) -> None:
    """Check that there is a provider of everything that handlers, hooks and middleware ask for.

    Raises: ConfigError: a provider does not exist; the error names the type and the existing ones.
    """
    layers = [*middleware]
    overrides = providers.overrides_in_force()
    for kind in registry:
        registration = registry[kind]
        providers.check(f"the handler of {kind!r}", registration.target.needs_under(overrides))
        layers.extend(registration.middleware)
    for hook in hooks:
        _check(providers, "hook", hook)
    for layer in layers:
        _check(providers, "middleware", layer)
        for callback in layer if isinstance(layer, Callbacks) else ():
            _check(providers, "hook", callback)


def _check(providers: Providers, what: str, function: Callable[..., Any]) -> None:
    refuse_dependencies(_called(what, function), function)
    providers.check(_called(what, function), needs_of(function))


def _called(what: str, function: Callable[..., Any]) -> str:
    return f"the {what} {getattr(function, '__qualname__', repr(function))}"
