"""Owns `@app.job`: with options or without, on functions and classes, typed by their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from windlass.app.kind import Kind
from windlass.app.producer import Handler, Options, Producer
from windlass.context import Context
from windlass.core.breaker import Breaker
from windlass.core.durations import Duration, duration
from windlass.core.error_classes import Classes, checked_classes
from windlass.core.errors import ConfigError
from windlass.core.fairness import Weights, checked_weights
from windlass.core.job import DEFAULT_QUEUE
from windlass.core.keys import Key, checked_key
from windlass.core.limits import Per, checked_amount, limit_of_kind
from windlass.core.names import check_name
from windlass.core.retry import Retry
from windlass.core.sizes import Size, size
from windlass.core.targets import checked_target
from windlass.core.unique import Identity, Unique, identity_of
from windlass.registry import (
    Batch,
    Middleware,
    Registration,
    Target,
    batch_target,
    class_target,
    function_target,
    payload_target,
)

if TYPE_CHECKING:
    from windlass.app.app import Windlass

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
DEFAULT: Any = object()
"""Stands for a timeout that was not given, since None is one: no timeout at all."""
_NONE: Classes = MappingProxyType({})


class ExecutesAsync(Protocol[R_co]):
    """A job as a class with `async def execute(self, ctx)`."""

    def execute(self, ctx: Context, /) -> Awaitable[R_co]:
        """Do the job."""


class Executes(Protocol[R_co]):
    """A job as a class with `def execute(self, ctx)`."""

    def execute(self, ctx: Context, /) -> R_co:
        """Do the job."""


class Given(TypedDict, total=False):
    """What `@app.job(...)` may be given, whatever it decorates."""

    queue: str
    priority: int
    retry: Retry | None
    max_retries: int | None
    errors: Classes
    timeout: Duration | None
    middleware: Sequence[Middleware]
    grace: Duration | None
    key: Key | None
    rate: str | None
    burst: int | None
    concurrency: int | None
    per: Per | None
    resource: str | None
    amount: int
    ordered: bool
    breaker: Breaker | str | None
    fair_by: Key | None
    weights: Weights | None
    slo: Duration | None
    unique: Key | Unique | None
    idempotency_key: Key | None
    idempotent: Literal["result"] | None


class Isolable(Given, total=False):
    """What it may be given for a handler that could run in a child process."""

    isolate: bool | None
    cpu: bool
    memory: Size | None


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What `@app.job(...)` was given."""

    name: str | None = None
    aliases: tuple[str, ...] = ()
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    retry: Retry | None = None
    max_retries: int | None = None
    errors: Classes = field(default_factory=dict)
    timeout: Duration | None = DEFAULT
    middleware: tuple[Middleware, ...] = ()
    isolate: bool | None = None
    cpu: bool = False
    memory: Size | None = None
    grace: Duration | None = None
    batch: int | None = None
    within: Duration = "100ms"
    key: Key | None = None
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    per: Per | None = None
    resource: str | None = None
    amount: int = 1
    ordered: bool = False
    breaker: Breaker | str | None = None
    fair_by: Key | None = None
    weights: Weights | None = None
    slo: Duration | None = None
    unique: Key | Unique | None = None
    idempotency_key: Key | None = None
    idempotent: Literal["result"] | None = None

    @property
    def isolated(self) -> bool | None:
        """Whether the handler runs in a child process; None leaves that to the app."""
        return self.isolate if not (self.cpu or self.memory) else True


class JobDecorator:
    """`@app.job`, or `@app.job(queue=..., ...)`."""

    def __init__(self, app: Windlass, options: JobOptions | None = None) -> None:
        self._app = app
        self._options = options or JobOptions()

    @overload
    def __call__(
        self, target: Callable[P, ExecutesAsync[R]], /
    ) -> Handler[P, R, P, ExecutesAsync[R]]: ...
    @overload
    def __call__(self, target: Callable[P, Executes[R]], /) -> Handler[P, R, P, Executes[R]]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> Handler[P, R, Concatenate[Context, P], Awaitable[R]]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], R], /
    ) -> Handler[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(self, target: Callable[P, Awaitable[R]], /) -> Handler[P, R, P, Awaitable[R]]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> Handler[P, R, P, R]: ...
    @overload
    def __call__(
        self, kind: Kind[T], /, *, aliases: Sequence[str] = (), **options: Unpack[Isolable]
    ) -> KindDecorator[T]: ...
    @overload
    def __call__(
        self,
        *,
        batch: int,
        within: Duration = ...,
        name: str | None = None,
        aliases: Sequence[str] = (),
        **options: Unpack[Given],
    ) -> BatchDecorator: ...
    @overload
    def __call__(
        self, *, name: str | None = None, aliases: Sequence[str] = (), **options: Unpack[Isolable]
    ) -> JobDecorator: ...

    def __call__(self, *targets: Any, **options: Any) -> Any:
        """Register a handler, or take options and return a decorator that does.

        `name` is the kind: give one, and moving or renaming the function orphans no job; `aliases`
        are names that the kind had before. `timeout=None` must be written out. `max_retries` is a
        shorthand for `retry=Retry(max_retries=...)`. `errors` are the classes of errors as this
        kind sees them, before those of `app.classify`.

        `isolate=True` runs the handler in a child process, which can be killed; so does `cpu=True`,
        since it then has a processor of its own, and `memory="512MB"`, above which it is killed.
        When its `timeout` is over a run is asked to end, and after the `grace` ("2s") made to.

        `batch=100` hands a list of up to so many payloads to one call, each of which is a job of
        its own, as soon as there are that many or the first has waited `within` ("100ms"). The
        handler returns None, or a list with what each job has: a result, an exception, `Snooze`.

        `key` is what the limits and the fairness of the kind go by: the name of an argument, or a
        function of the arguments.

        `rate="10/s"` and `concurrency=5` limit how many jobs start, and run, over all workers: of
        each key if there is one, else of the kind; `per="kind"` or `per="key"` says it outright.
        `burst` is how many may start at once. `resource="gpu", amount=2` uses so much of what
        `app.limit("gpu", concurrency=8)` allows. `ordered=True` runs the jobs of each key one after
        the other, and none before those ahead of it are done.
        `breaker` keeps the jobs of all kinds that name it from starting while what they depend on
        is down: a `Breaker`, or the name of one that is defined with another kind.

        `fair_by="tenant_id"` is such a key, and lets its values take turns, so that one's flood
        does not delay another's next job; `weights={"acme": 3}` gives some more than others.
        `slo="start within 5s"` pulls jobs forward before they are late, and counts those that are.

        `unique` is what at most one job may have at a time: likewise an argument or a function, or
        a `Unique` that says more. `idempotency_key` is what jobs are known by as done, for
        `ctx.already_done()`. `idempotent="result"` does not run a job whose idempotency key, or
        else unique key, was completed before, but completes it with the stored result.
        """
        target = targets[0] if targets else None
        if isinstance(target, Kind):
            return KindDecorator(self._app, target, _options(options))
        if target is None:
            given = _options(options)
            decorator = JobDecorator if given.batch is None else BatchDecorator
            return decorator(self._app, given)
        if options:
            raise ConfigError("write @app.job(...) with options, or @app.job without, not both")
        return self._register(target)

    def _register(self, function: Any) -> Handler[Any, Any, Any, Any]:
        if not callable(function):
            raise ConfigError(f"a handler is a function or a class, and {function!r} is neither")
        kind = self._options.name or str(getattr(function, "__name__", ""))
        if not kind.isidentifier() and self._options.name is None:
            raise ConfigError(f"{function!r} has no name that could be its kind; give one: name=")
        if inspect.isclass(function):
            options = _class_options(self._options, function)
            target = class_target(kind, function, cipher=self._app.vault)
            return _register(self._app, kind, function, target, options)
        target = function_target(kind, function, cipher=self._app.vault)
        return _register(self._app, kind, function, target, self._options)


class BatchDecorator:
    """`@app.job(batch=100, within="500ms")`: registers a function that takes a list of payloads."""

    def __init__(self, app: Windlass, options: JobOptions) -> None:
        self._app = app
        self._options = options

    def __call__(
        self, function: Callable[Concatenate[list[T], P], C], /
    ) -> Handler[[T], Any, Concatenate[list[T], P], C]:
        """Register the handler. What P is, a direct call may give: resources."""
        kind = self._options.name or function.__name__
        target = batch_target(kind, function, cipher=self._app.vault)
        return _register(self._app, kind, function, target, self._options)


class KindDecorator(Generic[T]):
    """`@app.job(KIND)`: registers a function that takes the kind's payload."""

    def __init__(self, app: Windlass, kind: Kind[T], options: JobOptions) -> None:
        self._app = app
        self._kind = kind
        self._options = options

    # P is what a direct call may give, and an enqueue cannot: resources.
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, T, P], Awaitable[R]], /
    ) -> Handler[[T], R, Concatenate[Context, T, P], Awaitable[R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, T, P], R], /
    ) -> Handler[[T], R, Concatenate[Context, T, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], Awaitable[R]], /
    ) -> Handler[[T], R, Concatenate[T, P], Awaitable[R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], R], /
    ) -> Handler[[T], R, Concatenate[T, P], R]: ...

    def __call__(self, function: Any, /) -> Any:
        """Register the handler of the kind."""
        kind = self._kind.name
        vault = self._app.vault
        target = payload_target(kind, function, self._kind.payload, cipher=vault)
        options = self._options
        if options.key is None and self._kind.key is not None:
            options = replace(options, key=self._kind.key)
        if options.unique is None and self._kind.unique is not None:
            options = replace(options, unique=self._kind.unique)
        if options.idempotency_key is None and self._kind.idempotency_key is not None:
            options = replace(options, idempotency_key=self._kind.idempotency_key)
        return _register(self._app, kind, function, target, options)


def _options(given: dict[str, Any]) -> JobOptions:
    for name in ("aliases", "middleware"):
        given[name] = tuple(given.get(name, ()))
    return JobOptions(**given)


def _class_options(options: JobOptions, cls: type[Any]) -> JobOptions:
    """Let a class carry its own `max_retries`, as a field of the class."""
    own = getattr(cls, "max_retries", None)
    is_field = "max_retries" in inspect.signature(cls).parameters
    if options.max_retries is None and isinstance(own, int) and not is_field:
        return JobOptions(**{**vars(options), "max_retries": own})
    return options


def _register(
    app: Windlass, kind: str, function: Any, target: Target, options: JobOptions
) -> Handler[Any, Any, Any, Any]:
    if options.retry is not None and options.max_retries is not None:
        raise ConfigError(
            f"kind {kind!r}: give retry=Retry(max_retries=...) or max_retries, not both"
        )
    if options.isolate is False and options.isolated:
        raise ConfigError(
            f"kind {kind!r}: cpu= and memory= need a child process, so leave isolate=False out"
        )
    errors = checked_classes(options.errors)
    retry = options.retry or Retry(max_retries=options.max_retries)
    if both := errors.keys() & retry.on.keys():
        names = ", ".join(sorted(each.__qualname__ for each in both))
        raise ConfigError(
            f"kind {kind!r}: {names} cannot be both in errors= and in retry=Retry(on=...): "
            "what has a policy of its own is transient"
        )
    key = _key(kind, target, options)
    identity = _identity(kind, target, options)
    defaults = Options(queue=options.queue, priority=options.priority)
    app.registry.add(
        Registration(
            kind=check_name("kind", kind),
            aliases=tuple(check_name("kind", alias) for alias in options.aliases),
            target=target,
            queue=defaults.queue,
            priority=defaults.priority,
            retry=retry,
            errors=errors,
            timeout=_timeout(options.timeout),
            middleware=options.middleware,
            module=str(getattr(function, "__module__", "")),
            isolate=options.isolated,
            memory=None if options.memory is None else size(options.memory),
            grace=None if options.grace is None else duration(options.grace),
            batch=_batch(kind, options),
            key=key,
            limit=limit_of_kind(
                kind,
                rate=options.rate,
                burst=options.burst,
                concurrency=options.concurrency,
                per=options.per,
                ordered=options.ordered,
                has_key=key is not None,
            ),
            resource=options.resource,
            amount=checked_amount(kind, options.resource, options.amount),
            breaker=options.breaker,
            weights=_weights(kind, options),
            slo=None if options.slo is None else checked_target(kind, options.slo),
            identity=identity,
        )
    )
    producer: Producer[Any, Any] = Producer(
        app,
        kind,
        codec=target.codec,
        payload=target.payload,
        hint=target.result,
        options=defaults,
        key=key,
        identity=identity,
    )
    return Handler(function, producer)


def _batch(kind: str, options: JobOptions) -> Batch | None:
    if options.batch is None:
        return None
    if isinstance(options.batch, bool) or options.batch < 1:
        raise ConfigError(f"kind {kind!r}: a batch has at least one job, and not {options.batch!r}")
    if options.isolated:
        raise ConfigError(
            f"kind {kind!r}: a batch is one call for many jobs, and a child process runs one job; "
            "leave isolate, cpu and memory out"
        )
    return Batch(size=options.batch, within=duration(options.within))


def _key(kind: str, target: Target, options: JobOptions) -> Key | None:
    key, fair_by = options.key, options.fair_by
    if key is not None and fair_by is not None and key != fair_by:
        raise ConfigError(
            f"kind {kind!r} has one key, by which it is both limited and fair: give key= or "
            "fair_by=, or the same to both"
        )
    chosen = fair_by if key is None else key
    return None if chosen is None else checked_key(kind, chosen, target.parameters)


def _weights(kind: str, options: JobOptions) -> Weights | None:
    if options.fair_by is not None:
        return checked_weights(kind, {} if options.weights is None else options.weights)
    if options.weights is not None:
        raise ConfigError(f"kind {kind!r}: weights= says how fair_by= divides; give that, too")
    return None


def _identity(kind: str, target: Target, options: JobOptions) -> Identity:
    if options.idempotent not in (None, "result"):
        raise ConfigError(
            f'kind {kind!r}: write idempotent="result" or leave it out: {options.idempotent!r} '
            "says nothing about what a job is completed with that is not run"
        )
    return identity_of(
        kind,
        unique=options.unique,
        idempotency_key=options.idempotency_key,
        idempotent=options.idempotent is not None,
        parameters=target.parameters,
        defaults=target.defaults,
    )


def _timeout(given: Duration | None) -> timedelta | Literal["default"] | None:
    if given is DEFAULT:
        return "default"
    return None if given is None else duration(given)
