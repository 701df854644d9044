"""Owns how a task is found by its path: the kind of a job, or a key of `OPTIONS["tasks"]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules, import_string

from windlass.contrib.django.task_jobs.framework import Task
from windlass.core.values.names import nearest

if TYPE_CHECKING:
    from windlass.contrib.django.project_apps import ProjectApp

TASKS_MODULE = "tasks"
"""The module of every app that a worker imports."""


def find_task(kind: str, imports: Sequence[str]) -> Any:
    """Return the task of a kind, or None if no module of this project has it.

    The store says which kind a job has, so only modules of installed apps and those in
    `OPTIONS["imports"]` are imported for it.
    """
    module = kind.rpartition(".")[0]
    is_imported = any(f"{module}.".startswith(f"{each}.") for each in imports)
    if not is_imported and apps.get_containing_app_config(module) is None:
        return None
    try:
        task = import_string(kind)
    except (Exception, SystemExit):  # noqa: BLE001 - a module of the project may raise anything.
        return None
    return task if isinstance(task, Task) else None


def imported_tasks() -> list[Any]:
    """Return the tasks of all modules that are imported."""
    modules = [(name, getattr(each, "__dict__", {})) for name, each in sys.modules.copy().items()]
    return [
        value
        for name, names in modules
        for value in names.copy().values()
        # By its type: `isinstance` would ask lazy objects of the program for their class.
        if issubclass(type(value), Task) and value.func.__module__ == name
    ]


def wrong_paths(app: ProjectApp) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of `OPTIONS["tasks"]` that are no path of a task: key, reason and remedy."""
    for path in app.options.tasks:
        try:
            task = import_string(path)
            reason = f"it is a {type(task).__qualname__}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above.
            task, reason = None, f"{type(error).__qualname__}: {error}"
        if not isinstance(task, Task):
            yield path, reason, _remedy(path)
        elif task.module_path != path:
            yield path, "the task is made elsewhere", f"write {task.module_path!r}"


def _remedy(path: str) -> str:
    with suppress(Exception):  # The worker says why tasks cannot be imported.
        autodiscover_modules(TASKS_MODULE)
    near = nearest(path, {task.module_path for task in imported_tasks()})
    if near:
        return f"did you mean {near!r}?"
    return "write the module and the name of a function with @task, like 'shop.tasks.send'"
