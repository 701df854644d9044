"""Owns the apps of a project as a worker's process finds them: `windlass.contrib.django.project`.

Importing it sets up Django and imports the tasks of all apps. Its attributes are the aliases in
TASKS: `windlass worker windlass.contrib.django.project:default`.
"""

from __future__ import annotations

from typing import Any

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from windlass.contrib.django.project_apps import ProjectApp, windlass_aliases, windlass_app
from windlass.contrib.django.task_jobs.framework import InvalidTask, task_backends
from windlass.contrib.django.task_jobs.task_handlers import handler_of
from windlass.contrib.django.task_jobs.task_paths import TASKS_MODULE, imported_tasks
from windlass.core.errors import ConfigError, ImportFailed, WindlassError


def _set_up() -> None:
    try:
        if not apps.ready:
            django.setup()
        autodiscover_modules(TASKS_MODULE)
    except ImproperlyConfigured as error:
        raise ConfigError(f"Django could not be set up: {' '.join(str(error).split())}") from error
    except WindlassError:
        raise
    except Exception as error:
        reason = f"{type(error).__qualname__}: {error}"
        raise ImportFailed(f"importing the tasks of this project failed: {reason}") from error


def register_tasks(app: ProjectApp) -> None:
    """Register the tasks that name another backend, too: `using(backend=...)` may send them here.

    A task that this backend cannot take, for example because of its queue, is left out.
    """
    for task in imported_tasks():
        backend: Any = task_backends[app.alias]
        try:
            backend.validate_task(task)
        except (InvalidTask, ImproperlyConfigured):
            if task.backend == app.alias:
                raise
            continue
        handler_of(app, task)


def __getattr__(alias: str) -> ProjectApp:
    if alias.startswith("__"):
        raise AttributeError(alias)
    try:
        app = windlass_app(alias)
        register_tasks(app)
    except ImproperlyConfigured as error:
        known = ", ".join(windlass_aliases()) or "none"
        raise ConfigError(f"{error} (backends of Windlass: {known})") from error
    return app


_set_up()
