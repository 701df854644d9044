"""Owns `@app.every` and `@app.cron`: handlers that are enqueued time and again, by their code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from windlass.app.decorator import Executes, ExecutesAsync, Isolable
from windlass.app.producer import Handler
from windlass.context import Context
from windlass.core.cadence import Cadence, cadence
from windlass.core.durations import Duration
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.schedule import CatchUp, Manner, Overlap

if TYPE_CHECKING:
    from windlass.app.app import Windlass

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Handler[Any, Any, Any, Any])


class Given(Isolable, total=False):
    """What both decorators may be given beside their times."""

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
        """Enqueue a handler every so often, from the time on when a worker first declares it.

        The handler takes no arguments, or has defaults for them. It stands above `@app.job(...)`,
        or takes the options of that itself. `name` is that of the schedule, which is else that of
        the kind; without `@app.job` it is both. The others are as in `app.schedules.put`.

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
    """Takes a handler, or what is to be one, and makes a schedule for it."""

    def __init__(self, app: Windlass, cadence: Cadence, options: dict[str, Any]) -> None:
        self._app = app
        self._cadence = cadence
        self._name: str | None = options.pop("name", None)
        own = {each.name for each in fields(Manner)} & options.keys()
        self._manner = Manner(**{name: options.pop(name) for name in own})
        self._options = options

    @overload
    def __call__(self, target: H, /) -> H: ...
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

    def __call__(self, target: Any, /) -> Any:
        """Make the schedule, and return the handler."""
        if not isinstance(target, Handler):
            target = self._app.job(name=self._name, **self._options)(target)
        elif self._options:
            given = ", ".join(sorted(self._options))
            raise ConfigError(f"kind {target.kind!r} has its own @app.job(...): move {given} there")
        try:
            job = target.draft().job
        except (PayloadInvalid, TypeError) as error:
            raise ConfigError(
                f"kind {target.kind!r} cannot tick by itself, since it takes arguments ({error}): "
                "give them defaults, or app.schedules.put(name, handler.draft(...), ...)"
            ) from None
        schedule = self._manner.schedule(job, self._cadence, declared=True)
        self._app.schedules.declare(self._name or target.kind, schedule)
        return target
