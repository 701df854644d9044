"""Owns `@app.every` and `@app.cron`: handlers with a schedule in code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from windlass.app.producer import Handler
from windlass.app.registration.job_decorator import Executes, ExecutesAsync, Isolable, R
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.jobs.outcomes import Steer, Value
from windlass.core.schedules.cron import Cadence, cadence
from windlass.core.schedules.definition import CatchUp, Manner, Overlap
from windlass.core.values.durations import Duration
from windlass.handlers.context import Context
from windlass.handlers.sync_context import SyncContext

if TYPE_CHECKING:
    from windlass.app.app import Windlass

P = ParamSpec("P")
V = TypeVar("V", bound=Value | None)
H = TypeVar("H", bound=Handler[Any, Any, Any, Any])


class Given(Isolable, total=False):
    """The options of both decorators beside their times."""

    name: str | None
    jitter: Duration
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap | None
    aliases: Sequence[str]


class EveryDecorator:
    """`@app.every("30s")`."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    def __call__(self, interval: Duration, /, **options: Unpack[Given]) -> ScheduleDecorator:
        """Enqueue a handler at a fixed interval, starting when a worker first declares it.

        The handler takes no arguments, or has defaults for them. Write it above
        `@app.job(...)`, or give it the options of that. `name` is the name of the schedule and
        defaults to the kind; without `@app.job` it names both. The other options are as in
        `app.schedules.put`.

        Raises:
            ConfigError: this is no interval, or an option is wrong.

        Example:
            `@app.every("30s", jitter="5s", timeout="20s")`
        """
        return ScheduleDecorator(
            self._app, cadence(every=interval, cron=None, tz=None), dict(options)
        )


class CronDecorator:
    """`@app.cron("0 7 * * MON-FRI", tz="Europe/Berlin")`."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    def __call__(
        self, line: str, /, *, tz: str = "UTC", **options: Unpack[Given]
    ) -> ScheduleDecorator:
        """Enqueue a handler by a cron line, in a time zone; otherwise the same as `every`.

        The line has five fields: minute, hour, day of month, month, day of week. Where a clock is
        set forward or back, cron's own rule holds: a fixed time that is skipped ticks right after
        the gap, and one that is shown twice ticks once; what has a star ticks by the clock.

        Raises:
            ConfigError: this is no cron line or no time zone, or an option is wrong.

        Example:
            `@app.cron("0 7 * * MON-FRI", tz="Europe/Berlin")`
        """
        return ScheduleDecorator(self._app, cadence(every=None, cron=line, tz=tz), dict(options))


class ScheduleDecorator:
    """Takes a handler, or a function to register, and makes a schedule for it."""

    def __init__(self, app: Windlass, cadence: Cadence, options: dict[str, Any]) -> None:
        self._app = app
        self._cadence = cadence
        self._name: str | None = options.pop("name", None)
        own = set(Manner.__struct_fields__) & options.keys()
        self._manner = Manner(**{name: options.pop(name) for name in own})
        self._options = options

    @overload
    def __call__(self, target: H, /) -> H: ...
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

    def __call__(self, target: Any, /) -> Any:
        """Make the schedule, and return the handler."""
        if not isinstance(target, Handler):
            target = self._app.job(name=self._name, **self._options)(target)
        elif self._options:
            given = ", ".join(sorted(self._options))
            raise ConfigError(f"kind {target.kind!r} has its own @app.job(...); move {given} there")
        try:
            job = target.draft().job
        except (PayloadInvalid, TypeError) as error:
            raise ConfigError(
                f"kind {target.kind!r} takes arguments ({error}), so a schedule cannot enqueue "
                "it; give them defaults, or use app.schedules.put(name, handler.draft(...), ...)"
            ) from None
        schedule = self._manner.schedule(job, self._cadence, declared=True)
        self._app.schedules.declare(self._name or target.kind, schedule)
        return target
