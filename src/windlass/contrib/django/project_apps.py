"""Owns the Windlass app of each backend: one for a process, whatever thread asks for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import close_old_connections

from windlass.app import Windlass
from windlass.app.producer import Handler
from windlass.contrib.django.database_urls import url_of_database
from windlass.contrib.django.options import BackendOptions, is_under_test, read_options
from windlass.contrib.django.task_jobs.framework import task_backends
from windlass.contrib.django.task_jobs.signals import TaskEnds
from windlass.core.errors import ConfigError
from windlass.settings import DEFAULT
from windlass.store import Store
from windlass.store.memory import MemoryStore

_apps: dict[str, ProjectApp] = {}
_lock = threading.RLock()
HOME = "windlass.contrib.django.project"
"""The module in which other processes find the apps, by their aliases."""


class ProjectApp(Windlass):
    """The app of one backend in TASKS."""

    def __init__(self, alias: str, options: BackendOptions) -> None:
        self.alias = alias
        self.options = options
        self.tasks: dict[str, Any] = {}
        """The tasks that are registered, by their kinds."""
        self.handlers: dict[str, Handler[..., Any, ..., Any]] = {}
        """Their handlers, by their kinds."""
        self.ends = TaskEnds(self)
        self.tidy: Callable[[], object] = close_old_connections
        """Called before and after an `async def` task, in the thread of its ORM."""
        self.registering = threading.RLock()
        super().__init__(
            options.url, imports=options.imports, meters=self.ends.meters, **options.settings
        )
        self.home = f"{HOME}:{alias}"
        self.on_job_error(self.ends.failed)
        self.on_shutdown(self.ends.wait)
        if self.resolved.sources["url"].source == DEFAULT:
            self._use_database()

    @property
    def store(self) -> Store:
        """The store that the URL names; under Django's test runner, one in memory.

        So a test that forgets to replace the store writes no job to a real one.
        """
        if self._store is None and is_under_test():
            self._store = MemoryStore(size=sys.maxsize)
        return super().store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    def _use_database(self) -> None:
        url = url_of_database(self.options.database)
        if url is None:
            raise ImproperlyConfigured(
                f'TASKS["{self.alias}"]["OPTIONS"]["url"] must be given, since Windlass cannot '
                f'keep jobs in the database {self.options.database!r}; write "url": '
                '"sqlite:////var/lib/shop/windlass.db", or a postgresql:// or redis:// URL'
            )
        # Not as a flag: what a person types on the command line wins.
        self._code["url"] = url
        self.configure()


def app_of(alias: str, given: Mapping[str, Any]) -> ProjectApp:
    """Return the app of a backend with these OPTIONS.

    Raises:
        ImproperlyConfigured: an option is wrong.
    """
    app = _apps.get(alias)
    if app is None:
        with _lock:
            app = _apps.get(alias)
            if app is None:
                app = _apps[alias] = _make(alias, given)
    return app


def _make(alias: str, given: Mapping[str, Any]) -> ProjectApp:
    options = read_options(alias, given)
    try:
        return ProjectApp(alias, options)
    except ConfigError as error:
        raise ImproperlyConfigured(f'TASKS["{alias}"]["OPTIONS"]: {error}') from error


def windlass_app(alias: str = "default") -> ProjectApp:
    """Return the app of a backend: for limits, hooks, schedules, control and native handlers.

    Raises:
        ImproperlyConfigured: TASKS has no Windlass backend of that alias.

    Example:
        `windlass_app().control.pause(queue="mail")`
    """
    backend = task_backends[alias] if alias in task_backends.settings else None
    app = getattr(backend, "app", None)
    if isinstance(app, ProjectApp):
        return app
    raise ImproperlyConfigured(
        f'TASKS["{alias}"] must have "BACKEND": "windlass.contrib.django.WindlassBackend"; '
        f"Windlass backends are: {', '.join(windlass_aliases()) or 'none'}"
    )


def windlass_aliases() -> list[str]:
    """Return the aliases in TASKS whose backend is a Windlass backend."""
    return [alias for alias in task_backends.settings if hasattr(task_backends[alias], "app_of")]


def _forget(*, setting: str, **_: object) -> None:
    if setting == "TASKS":
        with _lock:
            _apps.clear()


setting_changed.connect(_forget, dispatch_uid="windlass.contrib.django")
