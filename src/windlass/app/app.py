"""Owns `Windlass`, the app: settings, registry, store, hooks; it enqueues, and it makes workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack

from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.app.loop_thread import LoopThread, blocking, refuse_in_event_loop
from windlass.app.registration.job_decorator import JobDecorator
from windlass.app.registration.schedule_decorators import CronDecorator, EveryDecorator
from windlass.app.secrets.encryption import Encryption
from windlass.app.web import WebPage
from windlass.app.workers.embedded import EmbeddedWorkers
from windlass.core.errors import ConfigError
from windlass.core.failures.error_classes import Verdict
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.limit import limit_of_app
from windlass.core.values.job_options import checked_callables
from windlass.handlers.context import Context
from windlass.handlers.middleware import Callbacks, log_runs, trace_runs
from windlass.handlers.middleware.callbacks import Completed, Failed
from windlass.handlers.provided import Provided, Providers
from windlass.handlers.registry import CallHook, Middleware, Registry, checked_call_hook
from windlass.observability.traces import is_loaded
from windlass.settings import FlagArguments, Resolved, SettingArguments, load_settings
from windlass.store import Store, store_at

if TYPE_CHECKING:
    # Imported when they are first used: most programs only enqueue.
    from windlass.app.control.control import Control
    from windlass.app.jobs.jobs import Jobs
    from windlass.app.schedules import Schedules
    from windlass.core.stats.stats import Stats
    from windlass.observability.meters import Meters
    from windlass.process.supervisor_channel import SupervisorChannel
    from windlass.worker import Hooks, Worker

R = TypeVar("R")
T = TypeVar("T")
_OF_THE_STORE = {"url", "schema", "listen_url", "pool_size", "pool_overflow", "pool_recycle"}
_OF_THE_STORE |= {"spaces", "space"}
INTERNAL = {
    *("check_secrets", "child_hooks", "encryption", "enqueue_draft", "home", "ids", "layers"),
    *("make_store", "on_store", "portal", "providers", "registry", "resolved", "vault"),
    "worker_hooks",
}
Provides = TypeVar("Provides", bound=Callable[..., Any])
OnCall = TypeVar("OnCall", bound=CallHook)
OnWorker = TypeVar("OnWorker", bound=Callable[[], Awaitable[None] | None])
OnStart = TypeVar("OnStart", bound=Callable[[Context], Awaitable[None] | None])
OnComplete = TypeVar("OnComplete", bound=Completed)
OnError = TypeVar("OnError", bound=Failed)


class Windlass(EmbeddedWorkers):
    """An app: its handlers, its store, and how to work on them.

    The URL is the argument, else WINDLASS_URL, else `sqlite:///windlass.db`. `imports` names
    modules that a worker loads first, so that their handlers are registered. `middleware` wraps
    every handler, the first one outermost; log lines about runs come by themselves. `meters` makes
    the counters of a worker's jobs: see `Meters`.
    """

    _written: ClassVar[str] = "app"

    def __init__(
        self,
        url: str | None = None,
        *,
        imports: Sequence[str] = (),
        middleware: Sequence[Middleware] = (),
        meters: Callable[[], Meters] | None = None,
        **settings: Unpack[SettingArguments],
    ) -> None:
        self._code = {"url": url, "imports": tuple(imports), **settings}
        self._flags: dict[str, object] = {}
        self._store: Store | None = None
        self._making = threading.Lock()
        self.resolved = self._resolve({})
        """The settings in force, and where each came from."""
        self.settings = self.resolved.settings
        """The settings in force."""
        self._middleware = (log_runs, *checked_callables("middleware", middleware))
        self._meters = meters
        self._callbacks = Callbacks()
        self._on_start: list[Callable[[], Awaitable[None] | None]] = []
        self._on_shutdown: list[Callable[[], Awaitable[None] | None]] = []
        self.child_hooks: list[Callable[[], Awaitable[None] | None]] = []
        """Hooks of child processes before their first job."""
        self.home: str | None = None
        """Where child processes find this app, `module:attribute`; None: they have to search."""
        self.encryption = Encryption(lambda: self.settings.encryption_keys)
        """Seals and opens the secrets of this app's jobs."""
        self.registry = Registry()
        self.providers = Providers(self)
        self.ids = IdGenerator()
        self.portal = LoopThread()
        self.web = WebPage(self)
        self.job = JobDecorator(self)
        self.every = EveryDecorator(self)
        self.cron = CronDecorator(self)

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs of the store: find and count them."""
        from windlass.app.jobs.jobs import Jobs

        return Jobs(self)

    @cached_property
    def control(self) -> Control:
        """Operations on the store: cancel, redrive, pause, and the others of operators."""
        from windlass.app.control.control import Control

        return Control(self)

    @cached_property
    def schedules(self) -> Schedules:
        """The recurring jobs: list, put, pause, run."""
        from windlass.app.schedules import Schedules

        return Schedules(self)

    def __dir__(self) -> list[str]:
        """List the names that programs use; other parts of Windlass use the rest."""
        private = {name for name in super().__dir__() if name[0] == "_" and name[:2] != "__"}
        return sorted(set(super().__dir__()) - private - INTERNAL)

    def configure(self, **flags: Unpack[FlagArguments]) -> None:
        """Let flags override everything else; only before the store is used.

        Raises:
            ConfigError: a flag is wrong, or the store is in use.
        """
        if self._store is not None and any(flags.get(name) is not None for name in _OF_THE_STORE):
            raise ConfigError(
                "the store is already open, so its settings cannot be changed; call "
                "app.configure() before the first enqueue"
            )
        self._flags |= {name: value for name, value in flags.items() if value is not None}
        self.resolved = self._resolve({})
        self.settings = self.resolved.settings

    @staticmethod
    def make_store(resolved: Resolved) -> Store:
        """Make the store of an app; the pytest plugin replaces this."""
        return store_at(resolved.settings)

    @property
    def store(self) -> Store:
        """The store that the URL names."""
        if self._store is None:
            with self._making:
                if self._store is None:
                    self._store = self.make_store(self.resolved)
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def on_store(self, store: Store) -> Iterator[None]:
        """Use another store for the length of a block."""
        before, self._store = self._store, store
        try:
            yield
        finally:
            self._store = before

    # -- limits --------------------------------------------------------------------------------

    def limit(
        self,
        name: str | None = None,
        /,
        *,
        queue: str | None = None,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Limit, over all workers, what kinds share: a limit by its name, or a queue.

        `@app.job(limit="gpu", units=2)` uses two units; a queue's limit holds for all jobs in it.
        Call it before a worker starts.

        Raises:
            ConfigError: it is no limit, or there is one of that name.

        Example:
            `app.limit("gpu", concurrency=8)`, `app.limit(queue="mail", rate="100/s")`
        """
        limit = limit_of_app(name, queue=queue, rate=rate, burst=burst, concurrency=concurrency)
        self.registry.limit(limit)

    # -- errors --------------------------------------------------------------------------------

    def classify(
        self, error_class: Verdict, error: type[BaseException], /, *more: type[BaseException]
    ) -> None:
        """Set the class of exceptions, and of those derived from them, for all kinds.

        The nearest base class decides. Instead of a class, a function can be given that finds it
        for an exception, or leaves it open with None. Call it before a worker starts.

        Raises:
            ConfigError: these are no exceptions, or they were put in another class before.

        Example:
            `app.classify(ErrorClass.SYSTEM, GatewayDown)`
        """
        self.registry.classify(dict.fromkeys((error, *more), error_class))

    # -- provided values and hooks --------------------------------------------------------------

    def provide(self, function: Provides) -> Provides:
        """Open this when a worker starts, and pass it to handlers that ask for its type: `=
        Inject`.

        A function, or a generator whose second half closes what it yields, sync or async; its
        annotation is the type. It may ask for other provided values in the same way.

        Raises:
            ConfigError: what it gives or takes cannot be known, or there is one of that type.
        """
        self.providers.add(function)
        return function

    @property
    def dependency_overrides(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """What is called instead of a dependency: `app.dependency_overrides[get_user] = robot`."""
        return self.providers.overrides

    def open_provided(self) -> AbstractAsyncContextManager[Provided]:
        """Open what is provided without a worker: `async with app.open_provided() as provided:`."""
        return Provided(self.providers)

    def add_middleware(self, layer: Middleware) -> None:
        """Wrap every handler in this, inside the `middleware` that the app was made with.

        Call it before a worker starts; it is meant for extensions.

        Raises:
            ConfigError: it cannot be called.
        """
        self._middleware = (*self._middleware, *checked_callables("middleware", [layer]))

    def on_start(self, hook: OnWorker) -> OnWorker:
        """Call this before a worker starts; if it raises, the worker does not start."""
        self._on_start.append(hook)
        return hook

    def on_shutdown(self, hook: OnWorker) -> OnWorker:
        """Call this after a worker has drained."""
        self._on_shutdown.append(hook)
        return hook

    def on_child_start(self, hook: OnWorker) -> OnWorker:
        """Call this in every child process for isolated jobs, before its first job."""
        self.child_hooks.append(hook)
        return hook

    def on_call_start(self, hook: OnCall) -> OnCall:
        """Call this in the handler's own thread, before each call of a `def` handler there.

        Also before each `def` step and batch, and in child processes. If it raises, the job fails.
        """
        self.registry.on_call_start.append(checked_call_hook(hook))
        return hook

    def on_call_end(self, hook: OnCall) -> OnCall:
        """Call this in the handler's own thread, after each call there, also after a failed one.

        An exception of it is logged, and does not change the outcome.
        """
        self.registry.on_call_end.append(checked_call_hook(hook))
        return hook

    def on_job_start(self, callback: OnStart) -> OnStart:
        """Call this before every run: `callback(ctx)`."""
        self._callbacks.started.append(callback)
        return callback

    def on_job_complete(self, callback: OnComplete) -> OnComplete:
        """Call this after every run that completed its job: `callback(ctx, result)`.

        A callback with a third parameter is given the duration of the run, a `timedelta`.
        """
        self._callbacks.completed.append(callback)
        return callback

    def on_job_error(self, callback: OnError) -> OnError:
        """Call this once after every run that failed, for whatever reason: `callback(ctx, error)`.

        A callback with a third parameter is given the duration of the run, a `timedelta`.
        """
        self._callbacks.failed.append(callback)
        return callback

    # -- figures -------------------------------------------------------------------------------

    async def astats(self, *, queue: str | None = None, kind: str | None = None) -> Stats:
        """Return what workers recorded: queues, kinds, errors, workers, and what the load needs.

        For all queues and kinds, or for one queue or one kind. A figure that is not known yet is
        None; `unknown` has the reason.

        Example:
            `(await app.astats(queue="mail")).slots_needed`
        """
        from windlass.app.stats import gather_stats

        redaction = Redaction(self.settings.redact)
        return await gather_stats(self.store, redaction, queue=queue, kind=kind)

    stats = blocking(astats)

    # -- work ----------------------------------------------------------------------------------

    def worker(
        self,
        *,
        name: str = "",
        burst: bool = False,
        channel: SupervisorChannel | None = None,
        worker_class: type[Worker] | None = None,
        **flags: Unpack[FlagArguments],
    ) -> Worker:
        """Return a worker that is not running yet: `run()` serves until `stop()`.

        A `burst` stops by itself once none of its jobs runs and no job waits that it may run. It
        does not wait for scheduled jobs, like retries. A worker of the command line
        has a `channel` to its supervisor; `worker_class` is a subclass to use.

        Raises:
            ConfigError: a setting is wrong, leaves no queue to serve, or no key for secrets.
        """
        from windlass.app.workers.making import make_worker
        from windlass.worker import Worker

        made_of = (self, worker_class or Worker, self._resolve(flags), self._meters)
        return make_worker(*made_of, name=name, burst=burst, channel=channel)

    def check_secrets(self) -> None:
        """Reject kinds whose secrets cannot be opened here: their jobs would only die.

        Raises:
            ConfigError: there is no key for them, or the package `cryptography` is not installed.
        """
        secret = sorted(kind for kind in self.registry if self.registry[kind].target.has_secrets)
        if secret:
            self.encryption.check(f"{', '.join(map(repr, secret))} contains a Secret")

    @property
    def worker_hooks(self) -> Hooks:
        """The hooks around a worker's life."""
        from windlass.worker import Hooks

        start, end = self._on_start, self._on_shutdown
        return Hooks(on_start=start, on_shutdown=end, on_child_start=self.child_hooks)

    @property
    def layers(self) -> tuple[Middleware, ...]:
        """The middleware around every handler, in order."""
        callbacks = (self._callbacks,) if self._callbacks.wanted else ()
        tracing = (trace_runs,) if is_loaded(self.settings.traces) else ()
        return (*tracing, *self._middleware, *callbacks)

    async def aclose(self) -> None:
        """Let go of the store's connections and threads."""
        await self.store.close()

    def close(self) -> None:
        """Do what `aclose` does, from a thread without an event loop."""
        refuse_in_event_loop("app.close()", "await app.aclose()")
        self.portal.call(self.aclose())
        self.portal.close()

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        return self.portal.call(work)

    def _resolve(self, flags: Mapping[str, object]) -> Resolved:
        given = {name: value for name, value in flags.items() if value is not None}
        flags = self._flags | given
        return load_settings(flags, code=self._code, environ=os.environ, directory=Path.cwd())
