"""Owns how the signature of a function or a class becomes the target of a registration."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import msgspec

from windlass.core.claims.room import Pool
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.jobs.outcomes import Cancel, Snooze
from windlass.core.payloads.annotations import hints_of
from windlass.core.payloads.codec import PayloadCodec
from windlass.core.payloads.protobuf.hints import messages_in
from windlass.core.payloads.secret import Cipher, holds_secrets
from windlass.handlers.any_context import AnyContext
from windlass.handlers.context import Context
from windlass.handlers.dependencies import Dependencies
from windlass.handlers.dependencies.reading import asked_by
from windlass.handlers.provided import Need, is_injected, needs_of
from windlass.handlers.sync_context import SyncContext, in_thread
from windlass.handlers.target import Target

NONE: Mapping[str, Any] = types.MappingProxyType({})
"""The values of no dependencies."""


def function_target(
    kind: str, function: Callable[..., Any], *, cipher: Cipher | None = None
) -> Target:
    """Describe a function whose parameters are the fields of the payload."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"the handler of {kind!r} must not be a generator; return one value")
    hints = hints_of(function)
    parameters, context = _parameters(kind, function, hints)
    needs, dependencies = needs_of(function), _dependencies(kind, function, hints)
    call = _caller(function, context, needs)
    result = _result(hints.get("return", Any))
    return Target(
        call=call if dependencies is None else partial(_merged, call),
        pool=_pool(function),
        codec=PayloadCodec.for_parameters(kind, parameters, cipher=cipher),
        payload=_payload(kind, function, parameters, needs, dependencies),
        result=result,
        result_cipher=cipher if holds_secrets(result) else None,
        cipher=cipher,
        needs=needs,
        dependencies=dependencies,
        parameters=frozenset(parameters),
        defaults=_defaults(parameters),
    )


def payload_target(
    kind: str, function: Callable[..., Any], payload: Any, *, cipher: Cipher | None = None
) -> Target:
    """Describe a function that takes the whole payload as its one argument."""
    hints = hints_of(function)
    parameters, context = _parameters(kind, function, hints)
    if len(parameters) != 1:
        raise ConfigError(f"the handler of Kind {kind!r} must take one argument, its payload")
    (name,) = parameters
    needs, dependencies = needs_of(function), _dependencies(kind, function, hints)
    call = _caller(function, context, needs)
    result = _result(hints.get("return", Any))
    return Target(
        call=lambda ctx, value, injected=NONE: call(ctx, {name: value, **injected}),
        pool=_pool(function),
        codec=PayloadCodec(kind, payload, whole=True, cipher=cipher),
        payload=partial(whole_payload, kind),
        result=result,
        result_cipher=cipher if holds_secrets(result) else None,
        cipher=cipher,
        needs=needs,
        dependencies=dependencies,
    )


def batch_target(
    kind: str, function: Callable[..., Any], *, cipher: Cipher | None = None
) -> Target:
    """Describe a function that takes a list of payloads, each of which is a job of its own."""
    if not inspect.isfunction(function):
        raise ConfigError(f"kind {kind!r}: batch_size= needs a function as its handler")
    hints = hints_of(function)
    parameters, context = _parameters(kind, function, hints)
    if context is not None:
        raise ConfigError(
            f"kind {kind!r}: a batch handler cannot take a Context, since a batch has many jobs; "
            "leave it out"
        )
    hint = next(iter(parameters.values())).annotation if len(parameters) == 1 else None
    if typing.get_origin(hint) not in (list, collections.abc.Sequence) or not typing.get_args(hint):
        raise ConfigError(
            f"kind {kind!r}: a batch handler must take one argument, the list of payloads; write "
            "it like `def index(documents: list[Document])`"
        )
    (name,) = parameters
    (item,) = typing.get_args(hint)
    needs = needs_of(function)
    call = _caller(function, None, needs)
    return Target(
        call=lambda ctx, items, injected=NONE: call(ctx, {name: items, **injected}),
        pool=_pool(function),
        codec=PayloadCodec(kind, item, whole=True, cipher=cipher),
        payload=partial(whole_payload, kind),
        result=Any,
        needs=needs,
        dependencies=_dependencies(kind, function, hints, has_context=False),
    )


def whole_payload(kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the one argument that is the payload, whatever its name."""
    given = (*args, *kwargs.values())
    if len(given) != 1:
        raise TypeError(f"{kind} takes one argument, its payload, got {len(given)}")
    return given[0]


def class_target(kind: str, cls: type[Any], *, cipher: Cipher | None = None) -> Target:
    """Describe a class whose fields are the payload and whose `execute` does the work."""
    execute = getattr(cls, "execute", None)
    if execute is None:
        raise ConfigError(
            f"{cls.__qualname__} has no `execute(self, ctx)`, so it cannot be a job; define it"
        )
    hints = hints_of(cls) if is_dataclass(cls) or issubclass(cls, msgspec.Struct) else None
    parameters, _ = _parameters(kind, cls, hints or hints_of(cls.__init__))
    _refuse_injected_fields(cls, hints or hints_of(cls.__init__))
    own = hints_of(execute)
    others, context = _parameters(kind, execute, own, skip=1)
    if others:
        raise ConfigError(
            f"{cls.__qualname__}.execute must take only a context and provided values (`= "
            f"Inject`), got {', '.join(others)}; make other arguments fields of the class"
        )
    needs, dependencies = needs_of(execute), _dependencies(kind, execute, own)
    run = _caller(execute, context, needs)
    result = _result(own.get("return", Any))
    return Target(
        call=lambda ctx, arguments, injected=NONE: run(ctx, {"self": cls(**arguments), **injected}),
        pool=_pool(execute),
        codec=PayloadCodec.for_parameters(kind, parameters, cipher=cipher),
        payload=partial(_named, kind, tuple(parameters)),
        result=result,
        result_cipher=cipher if holds_secrets(result) else None,
        cipher=cipher,
        needs=needs,
        dependencies=dependencies,
        parameters=frozenset(parameters),
        defaults=_defaults(parameters),
    )


def _merged(
    call: Callable[[Context, Any], Any],
    ctx: Context,
    arguments: Mapping[str, Any],
    injected: Mapping[str, Any],
) -> Any:
    return call(ctx, {**arguments, **injected})


def _dependencies(
    kind: str, function: Callable[..., Any], hints: dict[str, Any], *, has_context: bool = True
) -> Dependencies | None:
    asked = asked_by(function, hints)
    return Dependencies(kind, asked, has_context=has_context) if asked else None


def _refuse_injected_fields(cls: type[Any], hints: Mapping[str, Any]) -> None:
    for name, parameter in inspect.signature(cls).parameters.items():
        if is_injected(parameter, hints.get(name)):
            raise ConfigError(
                f"the field {name!r} of {cls.__qualname__} cannot be injected, since fields are "
                f"the payload; write `def execute(self, ctx: Context, {name}: ... = Inject)`"
            )


def _payload(
    kind: str,
    function: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    needs: tuple[Need, ...],
    dependencies: Dependencies | None,
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """Return how arguments get their names; raise for an argument that is injected."""
    injected = frozenset(need.parameter for need in needs)
    injected |= frozenset() if dependencies is None else dependencies.parameters
    if not injected:
        return partial(_named, kind, tuple(parameters))
    taken = parameters.keys() | injected
    names = tuple(name for name in inspect.signature(function).parameters if name in taken)
    return partial(_named_but, kind, injected, names)


def _named(
    kind: str, parameters: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    if not args:
        return dict(kwargs)
    if len(args) > len(parameters):
        arguments = "argument" if len(parameters) == 1 else "arguments"
        raise TypeError(f"{kind} takes {len(parameters)} {arguments}, got {len(args)}")
    named = dict(zip(parameters, args, strict=False))
    if twice := named.keys() & kwargs.keys():
        raise TypeError(f"{kind} got several values for {', '.join(sorted(twice))}")
    return named | dict(kwargs)


def _named_but(
    kind: str,
    injected: frozenset[str],
    parameters: tuple[str, ...],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    named = _named(kind, parameters, args, kwargs)
    if given := injected & named.keys():
        reason = "the worker injects this value; leave it out"
        raise PayloadInvalid(kind, min(given), reason)
    return named


def _caller(
    function: Callable[..., Any], context: str | None, needs: tuple[Need, ...]
) -> Callable[[Context, Any], Any]:
    if context is None and not needs:
        return lambda _, arguments: function(**arguments)
    if context is None:
        return lambda ctx, arguments: function(**ctx.provided.given(function), **arguments)
    if _pool(function) is Pool.THREADS:
        return lambda ctx, arguments: function(
            **{context: in_thread(ctx)},
            **(ctx.provided.given(function) if needs else {}),
            **arguments,
        )
    if not needs:
        return lambda ctx, arguments: function(**{context: ctx}, **arguments)
    return lambda ctx, arguments: function(
        **{context: ctx}, **ctx.provided.given(function), **arguments
    )


def _parameters(
    kind: str, function: Callable[..., Any], hints: Mapping[str, Any], *, skip: int = 0
) -> tuple[dict[str, inspect.Parameter], str | None]:
    """Return the parameters that come from the payload, and the name of the one for the context.

    Provided values and those of dependencies are neither.
    """
    found: dict[str, inspect.Parameter] = {}
    context: str | None = None
    for name, parameter in list(inspect.signature(function).parameters.items())[skip:]:
        if parameter.kind in _UNNAMED:
            raise ConfigError(
                f"the handler of {kind!r} takes {parameter}, but a payload has named fields; give "
                "every parameter a name"
            )
        hint = hints.get(name, parameter.empty)
        if is_injected(parameter, hint):
            continue
        if hint not in _CONTEXTS:
            found[name] = parameter.replace(annotation=hint)
            continue
        if context is not None:
            raise ConfigError(f"the handler of {kind!r} takes two contexts; leave one out")
        if not inspect.isclass(function):
            _check_context(kind, name, hint, is_async=inspect.iscoroutinefunction(function))
        context = name
    return found, context


def _check_context(kind: str, name: str, hint: Any, *, is_async: bool) -> None:
    right, wrong = (Context, SyncContext) if is_async else (SyncContext, Context)
    if hint is wrong:
        this, other = ("an `async def`", "def") if is_async else ("a `def`", "async def")
        raise ConfigError(
            f"kind {kind!r}: {name} must be a {right.__name__} in {this} handler, got "
            f"{wrong.__name__}; write `{name}: {right.__name__}`, or make the handler `{other}`"
        )


def _defaults(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty
    }


_CONTEXTS = (AnyContext, Context, SyncContext)
_UNNAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


def _pool(function: Callable[..., Any]) -> Pool:
    return Pool.LOOP if inspect.iscoroutinefunction(function) else Pool.THREADS


def _result(hint: Any) -> Any:
    """Return the type of a stored result: the annotation without values that are not results."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part not in (Snooze, Cancel)]
        hint = typing.Union[tuple(rest)] if rest else Any  # noqa: UP007 - built from parts.
    messages_in(hint)  # Raises for those that cannot be read, before the first job has run.
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return Any
    return hint
