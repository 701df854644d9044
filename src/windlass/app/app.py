"""Owns `Windlass`, the app: settings, registry, store, hooks; it enqueues, and it makes workers."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from windlass.app import flow as flows
from windlass.app import pipeline as pipelines
from windlass.app.control import Control
from windlass.app.decorator import JobDecorator
from windlass.app.ids import Ids
from windlass.app.isolation import recipe_of
from windlass.app.portal import Portal, refuse_in_event_loop
from windlass.app.schedules import Schedules
from windlass.app.sender import Sender
from windlass.app.stats import gather_stats
from windlass.app.ticking import CronDecorator, EveryDecorator
from windlass.app.vault import Vault
from windlass.context import Context
from windlass.core.error_classes import Verdict
from windlass.core.errors import ConfigError
from windlass.core.job import Retention
from windlass.core.limits import limit_of_app
from windlass.core.names import check_name
from windlass.core.redaction import Redaction
from windlass.core.stats import Stats
from windlass.middleware import Callbacks, log_runs, trace_runs
from windlass.observe.meters import Meters
from windlass.observe.traces import is_loaded
from windlass.registry import Middleware, Registry
from windlass.release import __version__
from windlass.resources import Providers, Resources
from windlass.runtime import Hooks, Worker, WorkerOptions
from windlass.runtime.leash import Leash
from windlass.runtime.loading import refuse_worker
from windlass.runtime.office import access_of
from windlass.settings import DEFAULT, Resolved, Settings, load_settings
from windlass.store import Store, store_at

R = TypeVar("R")
T = TypeVar("T")
_OF_THE_STORE = ("url", "schema", "listen_url", "pool_size", "pool_overflow", "pool_recycle")
Provides = TypeVar("Provides", bound=Callable[..., Any])
OnWorker = TypeVar("OnWorker", bound=Callable[[], Awaitable[None] | None])
OnStart = TypeVar("OnStart", bound=Callable[[Context], Awaitable[None] | None])
OnComplete = TypeVar("OnComplete", bound=Callable[[Context, Any], Awaitable[None] | None])
OnError = TypeVar("OnError", bound=Callable[[Context, BaseException], Awaitable[None] | None])


class Windlass(Sender):
    """An app: its handlers, its store, and how to work on them.

    The URL is the argument, else WINDLASS_URL, else `sqlite:///windlass.db`. `imports` names
    modules that a worker loads first, so that their handlers are registered. `middleware` is put
    around every handler, first one outermost; log lines about runs come by themselves. `meters`
    makes what a worker counts its jobs with: see `Meters`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        imports: Sequence[str] = (),
        middleware: Sequence[Middleware] = (),
        meters: Callable[[], Meters] = Meters,
        **settings: Any,
    ) -> None:
        self._code = {"url": url, "imports": tuple(imports), **settings}
        self._flags: dict[str, object] = {}
        self._store: Store | None = None
        self._making = threading.Lock()
        self.resolved = self._resolve({})
        """The settings in force, and where each came from."""
        self.settings = self.resolved.settings
        """The settings in force."""
        self._middleware = (log_runs, *middleware)
        self._meters = meters
        self._callbacks = Callbacks()
        self._on_start: list[Callable[[], Awaitable[None] | None]] = []
        self._on_shutdown: list[Callable[[], Awaitable[None] | None]] = []
        self.child_hooks: list[Callable[[], Awaitable[None] | None]] = []
        """What child processes do before their first job."""
        self.home: str | None = None
        """Where child processes find this app, `module:attribute`; None: they have to search."""
        self.vault = Vault(lambda: self.settings.encryption_keys)
        """Seals and opens the secrets of this app's jobs."""
        self.registry = Registry()
        self.providers = Providers()
        self.ids = Ids()
        self.portal = Portal()
        self.control = Control(
            lambda: self.store, self.registry, lambda: Redaction(self.settings.redact)
        )
        self.schedules = Schedules(self)
        """What is enqueued time and again: looked at, put, paused, run."""
        self.job = JobDecorator(self)
        self.every = EveryDecorator(self)
        self.cron = CronDecorator(self)

    def configure(self, **flags: object) -> None:
        """Let flags win over everything else. Only before the store is used.

        Raises:
            ConfigError: a flag is wrong, or the store is in use.
        """
        if self._store is not None and any(flags.get(name) is not None for name in _OF_THE_STORE):
            raise ConfigError("the store is in use already, so its settings cannot be changed")
        self._flags |= {name: value for name, value in flags.items() if value is not None}
        self.resolved = self._resolve({})
        self.settings = self.resolved.settings

    @property
    def store(self) -> Store:
        """The store that the URL names."""
        if self._store is None:
            with self._making:
                if self._store is None:
                    self._store = store_at(self.settings)
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def on_store(self, store: Store) -> Iterator[None]:
        """Be on another store for the length of a block, and then on the one before again."""
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
        """Limit, over all workers, what kinds share: a resource by its name, or a queue.

        `@app.job(resource="gpu", amount=2)` uses a resource; a queue's limit holds for all jobs
        in it. Say it before a worker starts.

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
        """Say in which class exceptions are, and so are those derived from them, for all kinds.

        The nearest base class decides. Instead of a class, a function can be given that finds it
        for an exception, or leaves it open with None. Say it before a worker starts.

        Raises:
            ConfigError: these are no exceptions, or they were put in another class before.

        Example:
            `app.classify(ErrorClass.SYSTEM, GatewayDown)`
        """
        self.registry.classify(dict.fromkeys((error, *more), error_class))

    # -- resources and hooks -------------------------------------------------------------------

    def resource(self, function: Provides) -> Provides:
        """Open this when a worker starts, and give it to whoever asks for its type: `= Inject`.

        A function, or a generator whose second half closes what it yields, sync or async; its
        annotation tells the type. It may ask for other resources in the same way.

        Raises:
            ConfigError: what it gives or takes cannot be known, or there is one of that type.
        """
        self.providers.add(function)
        return function

    def open_resources(self) -> AbstractAsyncContextManager[Resources]:
        """Open the resources without a worker: `async with app.open_resources() as resources:`."""
        return Resources(self.providers)

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

    def on_job_start(self, callback: OnStart) -> OnStart:
        """Call this before every run: `callback(ctx)`."""
        self._callbacks.started.append(callback)
        return callback

    def on_job_complete(self, callback: OnComplete) -> OnComplete:
        """Call this after every run that succeeded: `callback(ctx, result)`."""
        self._callbacks.completed.append(callback)
        return callback

    def on_job_error(self, callback: OnError) -> OnError:
        """Call this after every run that raised: `callback(ctx, error)`."""
        self._callbacks.failed.append(callback)
        return callback

    # -- figures -------------------------------------------------------------------------------

    async def stats(self, *, queue: str | None = None, kind: str | None = None) -> Stats:
        """Return what workers recorded: queues, kinds, errors, workers, and what the load needs.

        All of it, or what has to do with one queue, or with one kind. What is not known yet is
        None; `unknown` says why.

        Example:
            `(await app.stats(queue="mail")).slots_needed`
        """
        redaction = Redaction(self.settings.redact)
        return await gather_stats(self.store, redaction, queue=queue, kind=kind)

    # -- work ----------------------------------------------------------------------------------

    async def run_worker(self, *, name: str = "", burst: bool = False, **flags: object) -> None:
        """Serve as a worker inside this program until cancelled; then drain, and return.

        Takes the settings as flags (`slots=10`, `queues={"mail": 5, "default": None}`). A `burst`
        ends by itself: see `worker`. The program's signals are left alone. An embedded worker
        renews its lease from a thread, so that C code which holds the interpreter's lock for longer
        than the lease costs it its jobs.
        """
        await self.worker(name=name, leash=None, burst=burst, of=Worker, **flags).run()

    def worker(
        self,
        *,
        name: str = "",
        burst: bool = False,
        leash: Leash | None = None,
        of: type[Worker] = Worker,
        **flags: object,
    ) -> Worker:
        """Return a worker that is not running yet: `run()` serves until `stop()`.

        A `burst` stops by itself once nothing of its own runs and nothing waits that it may run.
        What is scheduled for later, like a retry, is not waited for. The `leash` is for a worker
        that has a supervisor, as on the command line, and `of` makes workers of another sort.

        Raises:
            ConfigError: a setting is wrong, leaves no queue to serve, or no key for secrets.
        """
        refuse_worker()
        if name:
            check_name("worker", name)
        resolved = self._resolve(flags)
        settings = resolved.settings
        if settings.url != self.settings.url:
            raise ConfigError("a worker serves its app's store; say which with app.configure(url=)")
        self.load_imports(settings.imports)
        self.check_secrets()
        flows.register(self)
        pipelines.register(self)
        return of(
            store=self.store,
            registry=self.registry,
            options=replace(
                _worker_options(settings, name, burst=burst),
                # A program that embeds a worker may have a port of its own, so it has to say so.
                metrics=None if leash or not _is_told(resolved) else access_of(settings),
            ),
            meters=self._meters(),
            middleware=self.layers,
            hooks=Hooks(
                on_start=self._on_start,
                on_shutdown=self._on_shutdown,
                on_child_start=self.child_hooks,
            ),
            providers=self.providers,
            leash=leash,
            recipe=lambda: recipe_of(self, settings),
            schedules=self.schedules.declared,
            ids=self.ids.next,
        )

    def check_secrets(self) -> None:
        """Refuse to serve kinds whose secrets nobody here could open: their jobs would only die.

        Raises:
            ConfigError: there is no key for them, or the package `cryptography` is not installed.
        """
        secret = sorted(kind for kind in self.registry if self.registry[kind].target.has_secrets)
        if secret:
            self.vault.check(f"{', '.join(map(repr, secret))} has a Secret")

    @property
    def layers(self) -> tuple[Middleware, ...]:
        """The middleware around every handler, in order."""
        callbacks = (self._callbacks,) if self._callbacks.wanted else ()
        tracing = (trace_runs,) if is_loaded(self.settings.traces) else ()
        return (*tracing, *self._middleware, *callbacks)

    def load_imports(self, modules: Sequence[str]) -> None:
        """Import modules for the handlers that they register.

        Raises:
            ConfigError: one cannot be imported.
        """
        for module in modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ConfigError(f"the import {module!r} failed: {error}") from error

    async def aclose(self) -> None:
        """Let go of the store's connections and threads."""
        await self.store.close()

    def close(self) -> None:
        """Do what `aclose` does, from a thread without an event loop."""
        refuse_in_event_loop("app.close()", "await app.aclose()")
        self.portal.call(self.aclose())
        self.portal.close()

    def _resolve(self, flags: dict[str, object]) -> Resolved:
        given = {name: value for name, value in flags.items() if value is not None}
        return load_settings(
            self._flags | given, code=self._code, environ=os.environ, directory=Path.cwd()
        )


def _worker_options(settings: Settings, name: str, *, burst: bool) -> WorkerOptions:
    served = [each for each in settings.queues if each.queue not in settings.exclude]
    if settings.queues and not served:
        told = ",".join(map(str, settings.queues))
        raise ConfigError(f"no queue is left to serve: queues are {told}, and all are excluded")
    return WorkerOptions(
        name=name,
        release=__version__,
        queues=frozenset(each.queue for each in served) or None,
        excluded=frozenset() if served else frozenset(settings.exclude),
        queue_slots={each.queue: each.slots for each in served if each.slots is not None},
        burst=burst,
        slots=settings.slots,
        threads=settings.threads,
        children=settings.children,
        isolate=settings.isolate,
        batch_size=settings.batch_size,
        poll_interval=settings.poll_interval,
        lease=settings.lease,
        shutdown_timeout=settings.shutdown_timeout,
        retention=Retention(finished=settings.retention, dead=settings.dead_retention),
        max_retries=settings.max_retries,
        max_crashes=settings.max_crashes,
        timeout=settings.timeout,
        redaction=Redaction(settings.redact),
    )


def _is_told(resolved: Resolved) -> bool:
    return resolved.sources["metrics_port"].source != DEFAULT
