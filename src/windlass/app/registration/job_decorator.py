"""Owns `@app.job`: with options or without, on functions and classes, typed by their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
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

from msgspec.structs import replace

from windlass.app.producer import Handler
from windlass.app.registration.job_classes import option_fields, with_class_options
from windlass.app.registration.job_options import JobOptions, read_options
from windlass.app.registration.kind import Kind
from windlass.app.registration.register import register
from windlass.core.errors import ConfigError
from windlass.core.failures.error_classes import Classes
from windlass.core.jobs.outcomes import Steer, Value
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.unique import Unique
from windlass.core.policies.breaker import Breaker
from windlass.core.policies.fairness import Weights
from windlass.core.policies.keys import Key
from windlass.core.policies.limit import Per
from windlass.core.values.durations import Duration
from windlass.core.values.names import check_name, check_own_name
from windlass.core.values.sizes import Size
from windlass.handlers.context import Context
from windlass.handlers.registry import Middleware
from windlass.handlers.signatures import batch_target, class_target, function_target, payload_target
from windlass.handlers.sync_context import SyncContext

if TYPE_CHECKING:
    import typing_extensions

    from windlass.app.app import Windlass

    # A handler that returns nothing but a `Snooze` or `Cancel` has no result, as one that returns
    # None; without a default a checker would say Never, and take the lines after it for dead.
    R = typing_extensions.TypeVar("R", default=None)
else:
    R = TypeVar("R")
P = ParamSpec("P")
C = TypeVar("C")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
V = TypeVar("V", bound=Value | None)


class ExecutesAsync(Protocol[R_co]):
    """A job as a class with `async def execute(self, ctx)`."""

    def execute(self, ctx: Context, /) -> Awaitable[R_co]:
        """Do the job."""


class Executes(Protocol[R_co]):
    """A job as a class with `def execute(self, ctx)`."""

    def execute(self, ctx: SyncContext, /) -> R_co:
        """Do the job."""


class Given(TypedDict, total=False):
    """The options of `@app.job(...)`, whatever it decorates."""

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
    limit: str | None
    units: int
    ordered: bool
    breaker: Breaker | str | None
    fair_by: Key | None
    weights: Weights | None
    slo: Duration | None
    unique: Key | Unique | None
    idempotency_key: Key | None
    idempotent: Literal["result"] | None
    tags: Sequence[str]


class Isolable(Given, total=False):
    """The options of a handler that may run in a child process."""

    isolate: bool | None
    cpu_bound: bool
    memory: Size | None


class JobDecorator:
    """`@app.job`, or `@app.job(queue=..., ...)`."""

    def __init__(self, app: Windlass, options: JobOptions | None = None) -> None:
        self._app = app
        self._options = options or JobOptions()

    # A `Snooze` or `Cancel` that a handler may return is no result for callers: each form is
    # there twice, and `V` is whatever is neither.
    @overload
    def __call__(
        self, target: Callable[P, ExecutesAsync[V]], /
    ) -> Handler[P, V, P, ExecutesAsync[V]]: ...
    @overload
    def __call__(
        self, target: Callable[P, ExecutesAsync[R | Steer]], /
    ) -> Handler[P, R, P, ExecutesAsync[R | Steer]]: ...
    @overload
    def __call__(self, target: Callable[P, Executes[V]], /) -> Handler[P, V, P, Executes[V]]: ...
    @overload
    def __call__(
        self, target: Callable[P, Executes[R | Steer]], /
    ) -> Handler[P, R, P, Executes[R | Steer]]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Awaitable[V]], /
    ) -> Handler[P, V, Concatenate[Context, P], Awaitable[V]]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Awaitable[R | Steer]], /
    ) -> Handler[P, R, Concatenate[Context, P], Awaitable[R | Steer]]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[SyncContext, P], V], /
    ) -> Handler[P, V, Concatenate[SyncContext, P], V]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[SyncContext, P], R | Steer], /
    ) -> Handler[P, R, Concatenate[SyncContext, P], R | Steer]: ...
    @overload
    def __call__(self, target: Callable[P, Awaitable[V]], /) -> Handler[P, V, P, Awaitable[V]]: ...
    @overload
    def __call__(
        self, target: Callable[P, Awaitable[R | Steer]], /
    ) -> Handler[P, R, P, Awaitable[R | Steer]]: ...
    @overload
    def __call__(self, target: Callable[P, V], /) -> Handler[P, V, P, V]: ...
    @overload
    def __call__(self, target: Callable[P, R | Steer], /) -> Handler[P, R, P, R | Steer]: ...
    @overload
    def __call__(
        self, kind: Kind[T], /, *, aliases: Sequence[str] = (), **options: Unpack[Isolable]
    ) -> KindDecorator[T]: ...
    @overload
    def __call__(
        self,
        *,
        batch_size: int,
        batch_timeout: Duration = ...,
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

        `priority` is between -1000 and 1000, and one step is worth a minute of waiting. Jobs are
        found by their `tags`: `app.jobs.find(search="tag:billing")`.

        `name` is the kind: give one, and moving or renaming the function orphans no job; `aliases`
        are names that the kind had before. `timeout=None` must be written out. `max_retries` is a
        shorthand for `retry=Retry(max_retries=...)`. `errors` are the classes of errors as this
        kind sees them, before those of `app.classify`.

        `isolate=True` runs the handler in a child process, which can be killed; so does
        `cpu_bound=True`, since it then has a processor of its own, and `memory="512MB"`, above
        which it is killed.
        When its `timeout` is over a run is asked to end, and after the `grace` ("2s") made to.

        `batch_size=100` hands a list of up to 100 payloads to one call, each of which is a job of
        its own, as soon as there are that many or the first has waited `batch_timeout` ("100ms").
        The handler returns None, or a list with what each job has: a result, an exception,
        `Snooze`.

        `key` is what the limits and the fairness of the kind go by: the name of an argument, or a
        function of the arguments.

        `rate="10/s"` and `concurrency=5` limit how many jobs start, and run, over all workers: of
        each key if there is one, else of the kind; `per="kind"` or `per="key"` says it outright.
        `burst` is how many may start at once. `limit="gpu", units=2` uses so much of what
        `app.limit("gpu", concurrency=8)` allows. `ordered=True` runs the jobs of each key one after
        the other, and none before those ahead of it are done.
        `breaker` keeps the jobs of all kinds that name it from starting while what they depend on
        is down: a `Breaker`, or the name of one that is defined with another kind.

        `fair_by="tenant_id"` is such a key, and lets its values take turns, so that one's flood
        does not delay another's next job; `weights={"acme": 3}` gives some more than others.
        `slo="start within 5s"` pulls jobs forward before they are late, and counts those that are.

        `unique` is the key that at most one job may hold at a time: likewise an argument or a
        function, or a `Unique` with more options. `idempotency_key` is the key by which work is
        known as done, for `ctx.already_done()`. `idempotent="result"` does not run a job whose
        idempotency key, or else unique key, was completed before, but completes it with the stored
        result.
        """
        target = targets[0] if targets else None
        if isinstance(target, Kind):
            return KindDecorator(self._app, target, read_options(options))
        if target is None:
            given = read_options(options)
            decorator = JobDecorator if given.batch_size is None else BatchDecorator
            return decorator(self._app, given)
        return self._register(target, options)

    def _register(self, function: Any, misplaced: Any) -> Handler[Any, Any, Any, Any]:
        if misplaced:
            raise ConfigError(
                "a function cannot be combined with options; write @app.job(...) with options, "
                "or @app.job without"
            )
        if not callable(function):
            raise ConfigError(f"a handler must be a function or a class, got {function!r}")
        options, cipher = self._options, self._app.encryption
        if inspect.isclass(function):
            options = with_class_options(options, function)
        kind = str(getattr(function, "__name__", "")) if options.name is None else options.name
        if options.name is None and not kind.isidentifier():
            raise ConfigError(f"{function!r} has no name to use as its kind; give one with name=")
        if inspect.isclass(function):
            target = class_target(kind, function, cipher=cipher)
            fields = option_fields(function)
            return register(self._app, kind, function, target, options, fields=fields)
        target = function_target(kind, function, cipher=cipher)
        return register(self._app, kind, function, target, options)


def builtin(app: Windlass, kind: Kind[T]) -> KindDecorator[T]:
    """Return a decorator for handlers of Windlass itself."""
    return KindDecorator(app, kind, JobOptions(), is_builtin=True)


class BatchDecorator:
    """`@app.job(batch_size=100, ...)`: registers a function that takes a list of payloads."""

    def __init__(self, app: Windlass, options: JobOptions) -> None:
        self._app = app
        self._options = options

    def __call__(
        self, function: Callable[Concatenate[list[T], P], C], /
    ) -> Handler[[T], Any, Concatenate[list[T], P], C]:
        """Register the handler. A direct call may pass P: provided values."""
        kind = function.__name__ if self._options.name is None else self._options.name
        target = batch_target(kind, function, cipher=self._app.encryption)
        return register(self._app, kind, function, target, self._options)


class KindDecorator(Generic[T]):
    """`@app.job(KIND)`: registers a function that takes the kind's payload."""

    def __init__(
        self, app: Windlass, kind: Kind[T], options: JobOptions, *, is_builtin: bool = False
    ) -> None:
        self._app = app
        self._kind = kind
        self._options = options
        self._check = check_name if is_builtin else check_own_name

    # P are the provided values, which a direct call may pass and an enqueue cannot.
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, T, P], Awaitable[V]], /
    ) -> Handler[[T], V, Concatenate[Context, T, P], Awaitable[V]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, T, P], Awaitable[R | Steer]], /
    ) -> Handler[[T], R, Concatenate[Context, T, P], Awaitable[R | Steer]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[SyncContext, T, P], V], /
    ) -> Handler[[T], V, Concatenate[SyncContext, T, P], V]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[SyncContext, T, P], R | Steer], /
    ) -> Handler[[T], R, Concatenate[SyncContext, T, P], R | Steer]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], Awaitable[V]], /
    ) -> Handler[[T], V, Concatenate[T, P], Awaitable[V]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], Awaitable[R | Steer]], /
    ) -> Handler[[T], R, Concatenate[T, P], Awaitable[R | Steer]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], V], /
    ) -> Handler[[T], V, Concatenate[T, P], V]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], R | Steer], /
    ) -> Handler[[T], R, Concatenate[T, P], R | Steer]: ...

    def __call__(self, function: Any, /) -> Any:
        """Register the handler of the kind."""
        kind = self._kind.name
        encryption = self._app.encryption
        target = payload_target(kind, function, self._kind.payload, cipher=encryption)
        options = self._options
        if options.key is None and self._kind.key is not None:
            options = replace(options, key=self._kind.key)
        if options.unique is None and self._kind.unique is not None:
            options = replace(options, unique=self._kind.unique)
        if options.idempotency_key is None and self._kind.idempotency_key is not None:
            options = replace(options, idempotency_key=self._kind.idempotency_key)
        return register(self._app, kind, function, target, options, self._check)
