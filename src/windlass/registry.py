"""Owns the registered handlers, with what each kind needs to be enqueued, claimed and run."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import msgspec

from windlass.context import Context
from windlass.core.breaker import Breaker, Rule, own_rule
from windlass.core.error_classes import Classes, ErrorClass, Verdict, checked_classes, reached
from windlass.core.errors import ConfigError, PayloadInvalid, UnknownKind
from windlass.core.fairness import Weights
from windlass.core.hints import hints_of
from windlass.core.keys import Key
from windlass.core.limits import Limit, queue_limit
from windlass.core.outcomes import Cancel, Snooze
from windlass.core.payload import PayloadCodec, encode_json
from windlass.core.plan import Pool
from windlass.core.retry import Retry
from windlass.core.secret import Cipher, Sealing, holds_secrets
from windlass.core.unique import NO_IDENTITY, Identity
from windlass.resources import Inject, Need, needs_of

_SYSTEM = ErrorClass.SYSTEM
CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, CallNext], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The code behind a kind: how to call it, where it runs, and what it takes and gives."""

    call: Callable[[Context, Any], Any]
    pool: Pool
    codec: PayloadCodec
    payload: Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
    result: Any
    needs: tuple[Need, ...] = ()
    """The parameters that are resources."""
    parameters: frozenset[str] | None = None
    """The names of the arguments; None if the payload is one value."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What arguments are that are not given."""
    result_cipher: Cipher | None = None
    """What seals the secrets in a result; None if it has none."""
    cipher: Cipher | None = None
    """What seals the secrets in the results of its steps."""

    @property
    def has_secrets(self) -> bool:
        """Whether there can be secrets in its payload or its result."""
        return self.codec.has_secrets or self.result_cipher is not None

    def encode_result(self, kind: str, value: Any) -> bytes:
        """Encode what the handler returned, for a job of its kind or of an alias.

        Raises:
            PayloadInvalid: it has no JSON form.
        """
        if self.result_cipher is None:
            return encode_json(kind, value)
        return encode_json(kind, value, sealing=Sealing(self.result_cipher, "result", kind))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How many jobs one call takes, and how long the first of them waits for the others."""

    size: int
    within: timedelta


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A kind with its handler, and the defaults of its jobs."""

    kind: str
    aliases: tuple[str, ...]
    target: Target
    queue: str
    priority: int
    retry: Retry
    errors: Classes
    timeout: timedelta | Literal["default"] | None
    middleware: tuple[Middleware, ...]
    module: str = ""
    """Where it was defined, and is found again by a child process."""
    isolate: bool | None = None
    """Whether it runs in a child process; None leaves that to the app."""
    memory: int | None = None
    """Bytes that a run may use, in a child process."""
    grace: timedelta | None = None
    """How long a run that is stopped may clean up."""
    batch: Batch | None = None
    """How its jobs are gathered for one call; None: each has a call of its own."""
    key: Key | None = None
    """What its limits and its fairness go by."""
    limit: Limit | None = None
    """How many may start, or run, by its own options."""
    resource: str | None = None
    """The limit that it shares with others."""
    amount: int = 1
    """How much of the resource a job uses."""
    breaker: Breaker | str | None = None
    """What keeps its jobs from starting while something is down, or the name of that."""
    weights: Weights | None = None
    """The weights of its keys, which take turns; None: they do not."""
    slo: timedelta | None = None
    """How long a job of it may wait for its start."""
    identity: Identity = NO_IDENTITY
    """What its jobs are unique by, and known by as done."""

    def timeout_or(self, default: timedelta) -> timedelta | None:
        """Return how long a run may take: as registered, or by default."""
        return default if self.timeout == "default" else self.timeout

    def grace_or(self, default: timedelta) -> timedelta:
        """Return how long a run that is stopped may clean up: as registered, or by default."""
        return default if self.grace is None else self.grace

    def pool(self, *, isolate: bool) -> Pool:
        """Return where a run takes place; `isolate` is the app's choice for `def` handlers."""
        if self.batch is not None:
            return Pool.LOOP  # Where they wait for each other.
        by_default = isolate and self.target.pool is Pool.THREADS
        isolated = by_default if self.isolate is None else self.isolate
        return Pool.CHILDREN if isolated else self.target.pool


class Registry:
    """The handlers of an app by kind. A handler is found here only, never by a name in a row."""

    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}
        self._errors: dict[type[BaseException], Verdict] = {}
        self._limits: dict[str, Limit] = {}
        self._breakers: dict[str, Rule] = {}

    @property
    def errors(self) -> Classes:
        """The classes of errors that hold for all kinds."""
        return self._errors

    def classify(self, classes: Classes) -> None:
        """Add to the classes of errors that hold for all kinds.

        Raises:
            ConfigError: this is no table of classes, or contradicts what is there already.
        """
        for error, verdict in checked_classes(classes).items():
            if self._errors.setdefault(error, verdict) != verdict:
                raise ConfigError(
                    f"{error.__qualname__} is classified twice, and differently; say once what "
                    "holds for all kinds, and in @app.job(errors=...) what holds for one"
                )

    @property
    def limits(self) -> Mapping[str, Limit]:
        """All limits by name: those of the app, and those of the kinds."""
        kinds = (each.limit for each in self._registrations.values())
        return self._limits | {limit.name: limit for limit in kinds if limit is not None}

    @property
    def is_limited(self) -> bool:
        """Whether anything is limited at all."""
        return bool(self.limits) or any(each.resource for each in self._registrations.values())

    @property
    def ordered(self) -> frozenset[str]:
        """The kinds, and their aliases, whose jobs must not be overtaken."""
        found = ((kind, each.limit) for kind, each in self._registrations.items())
        return frozenset(kind for kind, limit in found if limit is not None and limit.ordered)

    def limited_by(self, kind: str, queue: str) -> Iterator[tuple[str, int]]:
        """Return the limits that may hold for jobs of a kind, and how much of each one uses.

        They are in the order in which all ask for them.
        """
        if kind not in self:
            return
        registration = self[kind]
        yield queue_limit(queue), 1
        if registration.resource is not None:
            yield registration.resource, registration.amount
        if registration.limit is not None:
            yield registration.limit.name, 1

    def limit(self, limit: Limit) -> None:
        """Add a limit that kinds share.

        Raises:
            ConfigError: there is one of that name.
        """
        if limit.name in self._limits:
            raise ConfigError(f"limit {limit.name!r} is defined twice; say once what it is")
        self._limits[limit.name] = limit

    def add(self, registration: Registration) -> None:
        """Register a handler under its kind and its aliases.

        Raises:
            ConfigError: one of them is taken, or its breaker is defined otherwise elsewhere.
        """
        for name in (registration.kind, *registration.aliases):
            if name in self._registrations:
                raise ConfigError(
                    f"two handlers are registered for kind {name!r}; give one another name="
                )
        self._define(registration)
        for name in (registration.kind, *registration.aliases):
            self._registrations[name] = registration

    def _define(self, registration: Registration) -> None:
        breaker = registration.breaker
        if not isinstance(breaker, Breaker | str | None):
            raise ConfigError(
                f"kind {registration.kind!r}: breaker= takes a Breaker or the name of one, and "
                f"{breaker!r} is neither"
            )
        if isinstance(breaker, Breaker):
            rule = breaker.rule
            if self._breakers.setdefault(rule.name, rule) != rule:
                raise ConfigError(
                    f"breaker {rule.name!r} is defined twice, and differently; define it once, and "
                    f"elsewhere write breaker={rule.name!r}"
                )

    def __getitem__(self, kind: str) -> Registration:
        """Return a kind's registration.

        Raises:
            UnknownKind: there is none; the error lists those that come near.
        """
        try:
            return self._registrations[kind]
        except KeyError:
            # Here, not above: it takes as long to load as all of this module.
            import difflib

            near = difflib.get_close_matches(kind, self._registrations, n=5, cutoff=0.3)
            raise UnknownKind(kind, tuple(near)) from None

    def __contains__(self, kind: str) -> bool:
        """Say whether a kind, or an alias, is registered."""
        return kind in self._registrations

    def __iter__(self) -> Iterator[str]:
        """Iterate over all kinds and aliases."""
        return iter(self._registrations)

    def rule_of(self, kind: str) -> Rule | None:
        """Return the rule of the breaker that a kind goes by.

        One that names none has one of its own, if there are errors that would be system errors.

        Raises:
            ConfigError: it names one that nobody defined.
        """
        registration = self._registrations[kind]
        match registration.breaker:
            case None:
                classes = reached(registration.errors, self._errors)
                mattering = (each for each in classes if callable(each) or each is _SYSTEM)
                return own_rule(registration.kind) if any(mattering) else None
            case str(name) if name not in self._breakers:
                known = ", ".join(sorted(self._breakers)) or "none"
                raise ConfigError(
                    f"kind {kind!r} goes by breaker {name!r}, which nobody defined; there are: "
                    f"{known}. Is the module imported that has Breaker({name!r}, ...)?"
                )
            case str(name):
                return self._breakers[name]
            case defined:
                return defined.rule

    def rules(self) -> dict[str, Rule]:
        """Return the rule of each kind that goes by a breaker.

        Raises:
            ConfigError: a kind names a breaker that nobody defined.
        """
        found = {kind: self.rule_of(kind) for kind in self._registrations}
        return {kind: rule for kind, rule in found.items() if rule is not None}

    def pools(self, *, isolate: bool = False) -> dict[str, Pool]:
        """Return where the handler of each kind runs; `isolate` is the app's choice for `def`."""
        return {kind: each.pool(isolate=isolate) for kind, each in self._registrations.items()}

    def targets(self) -> dict[str, timedelta]:
        """Return how long the jobs of each kind that has a target may wait for their start."""
        return {
            kind: each.slo for kind, each in self._registrations.items() if each.slo is not None
        }


def function_target(
    kind: str, function: Callable[..., Any], *, cipher: Cipher | None = None
) -> Target:
    """Describe a function whose parameters are the fields of the payload."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"the handler of {kind!r} is a generator; a handler returns once")
    hints = hints_of(function)
    parameters, context = _parameters(kind, function, hints)
    needs = needs_of(function)
    result = _result(hints.get("return", Any))
    return Target(
        call=_caller(function, context, needs),
        pool=_pool(function),
        codec=PayloadCodec.for_parameters(kind, parameters, cipher=cipher),
        payload=_payload(kind, function, parameters, needs),
        result=result,
        result_cipher=cipher if holds_secrets(result) else None,
        cipher=cipher,
        needs=needs,
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
        raise ConfigError(f"the handler of Kind {kind!r} takes one argument: its payload")
    (name,) = parameters
    needs = needs_of(function)
    call = _caller(function, context, needs)
    result = _result(hints.get("return", Any))
    return Target(
        call=lambda ctx, value: call(ctx, {name: value}),
        pool=_pool(function),
        codec=PayloadCodec(kind, payload, whole=True, cipher=cipher),
        payload=partial(whole_payload, kind),
        result=result,
        result_cipher=cipher if holds_secrets(result) else None,
        cipher=cipher,
        needs=needs,
    )


def batch_target(
    kind: str, function: Callable[..., Any], *, cipher: Cipher | None = None
) -> Target:
    """Describe a function that takes a list of payloads, each of which is a job of its own."""
    if not inspect.isfunction(function):
        raise ConfigError(f"kind {kind!r}: a batch is handled by a function")
    hints = hints_of(function)
    parameters, context = _parameters(kind, function, hints)
    if context is not None:
        raise ConfigError(f"kind {kind!r}: a batch has many jobs, so it cannot have one context")
    hint = next(iter(parameters.values())).annotation if len(parameters) == 1 else None
    if typing.get_origin(hint) not in (list, collections.abc.Sequence) or not typing.get_args(hint):
        raise ConfigError(
            f"kind {kind!r}: a batch takes one argument, the list of its payloads; write it like "
            "`def index(documents: list[Document])`"
        )
    (name,) = parameters
    (item,) = typing.get_args(hint)
    needs = needs_of(function)
    call = _caller(function, None, needs)
    return Target(
        call=lambda ctx, items: call(ctx, {name: items}),
        pool=_pool(function),
        codec=PayloadCodec(kind, item, whole=True, cipher=cipher),
        payload=partial(whole_payload, kind),
        result=Any,
        needs=needs,
    )


def whole_payload(kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the one argument that is the payload, whatever it is called."""
    given = (*args, *kwargs.values())
    if len(given) != 1:
        raise TypeError(f"{kind} takes one argument, its payload, and {len(given)} were given")
    return given[0]


def class_target(kind: str, cls: type[Any], *, cipher: Cipher | None = None) -> Target:
    """Describe a class whose fields are the payload and whose `execute` does the work."""
    execute = getattr(cls, "execute", None)
    if execute is None:
        raise ConfigError(f"{cls.__qualname__} has no `execute(self, ctx)`, so it is no job")
    hints = hints_of(cls) if is_dataclass(cls) or issubclass(cls, msgspec.Struct) else None
    parameters, _ = _parameters(kind, cls, hints or hints_of(cls.__init__))
    _refuse_injected_fields(cls)
    others, context = _parameters(kind, execute, hints_of(execute), skip=1)
    if others:
        raise ConfigError(
            f"{cls.__qualname__}.execute takes {', '.join(others)}: it takes `ctx: Context` and "
            "resources (`= Inject`) only, and what else the job needs is in its fields"
        )
    needs = needs_of(execute)
    run = _caller(execute, context, needs)
    result = _result(hints_of(execute).get("return", Any))
    return Target(
        call=lambda ctx, arguments: run(ctx, {"self": cls(**arguments)}),
        pool=_pool(execute),
        codec=PayloadCodec.for_parameters(kind, parameters, cipher=cipher),
        payload=partial(_named, kind, tuple(parameters)),
        result=result,
        result_cipher=cipher if holds_secrets(result) else None,
        cipher=cipher,
        needs=needs,
        parameters=frozenset(parameters),
        defaults=_defaults(parameters),
    )


def _refuse_injected_fields(cls: type[Any]) -> None:
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is Inject:
            raise ConfigError(
                f"the field {name!r} of {cls.__qualname__} cannot be injected, since fields are "
                f"the payload: write `def execute(self, ctx: Context, {name}: ... = Inject)`"
            )


def _payload(
    kind: str,
    function: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    needs: tuple[Need, ...],
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """Return how arguments get their names; one who gives what is injected is told so."""
    if not needs:
        return partial(_named, kind, tuple(parameters))
    injected = frozenset(need.parameter for need in needs)
    taken = parameters.keys() | injected
    names = tuple(name for name in inspect.signature(function).parameters if name in taken)
    return partial(_named_but, kind, injected, names)


def _named(
    kind: str, parameters: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Give positional arguments their names, as a call would."""
    if not args:
        return dict(kwargs)
    if len(args) > len(parameters):
        raise TypeError(f"{kind} takes {len(parameters)} arguments, and {len(args)} were given")
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
        reason = "it is injected by the worker, from its resources: leave it out"
        raise PayloadInvalid(kind, min(given), reason)
    return named


def _caller(
    function: Callable[..., Any], context: str | None, needs: tuple[Need, ...]
) -> Callable[[Context, Any], Any]:
    if context is None and not needs:
        return lambda _, arguments: function(**arguments)
    if context is None:
        return lambda ctx, arguments: function(**ctx.resources.given(function), **arguments)
    if not needs:
        return lambda ctx, arguments: function(**{context: ctx}, **arguments)
    return lambda ctx, arguments: function(
        **{context: ctx}, **ctx.resources.given(function), **arguments
    )


def _parameters(
    kind: str, function: Callable[..., Any], hints: Mapping[str, Any], *, skip: int = 0
) -> tuple[dict[str, inspect.Parameter], str | None]:
    """Return the parameters that come from the payload, and the name of the one for the context.

    Resources are neither.
    """
    found: dict[str, inspect.Parameter] = {}
    context: str | None = None
    for name, parameter in list(inspect.signature(function).parameters.items())[skip:]:
        if parameter.kind in _UNNAMED:
            raise ConfigError(
                f"the handler of {kind!r} takes {parameter}: a payload has named fields, "
                "so give every parameter a name"
            )
        if parameter.default is Inject:
            continue
        hint = hints.get(name, parameter.empty)
        if hint is Context and context is not None:
            raise ConfigError(f"the handler of {kind!r} takes two contexts; one is all there is")
        if hint is Context:
            context = name
        else:
            found[name] = parameter.replace(annotation=hint)
    return found, context


def _defaults(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty
    }


_UNNAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


def _pool(function: Callable[..., Any]) -> Pool:
    return Pool.LOOP if inspect.iscoroutinefunction(function) else Pool.THREADS


def _result(hint: Any) -> Any:
    """Return the type of a stored result: the annotation less the values that are not results."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part not in (Snooze, Cancel)]
        hint = typing.Union[tuple(rest)] if rest else Any  # noqa: UP007 - built from parts.
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return Any
    return hint
