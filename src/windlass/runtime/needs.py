"""Owns the check, before a worker starts, that everybody can be given the resources asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windlass.middleware import Callbacks, Middleware
from windlass.registry import Registry
from windlass.resources import Providers, needs_of


def check_needs(
    providers: Providers,
    *,
    registry: Registry,
    middleware: Iterable[Middleware],
    hooks: Iterable[Callable[..., Any]],
) -> None:
    """Make sure that every handler, hook and middleware can be given what it asks for.

    Raises:
        ConfigError: there is no resource for one; the error names it, and the resources there are.
    """
    layers = [*middleware]
    for kind in registry:
        registration = registry[kind]
        providers.check(f"the handler of {kind!r}", registration.target.needs)
        layers.extend(registration.middleware)
    for hook in hooks:
        providers.check(_called("hook", hook), needs_of(hook))
    for layer in layers:
        providers.check(_called("middleware", layer), needs_of(layer))
        for callback in layer if isinstance(layer, Callbacks) else ():
            providers.check(_called("hook", callback), needs_of(callback))


def _called(what: str, function: Callable[..., Any]) -> str:
    return f"the {what} {getattr(function, '__qualname__', repr(function))}"
