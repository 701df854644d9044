"""Owns which tasks framework there is: `django.tasks` since Django 6.0, else `django_tasks`.

Both have the same parts under slightly different names; the other modules import them from here.
"""

from __future__ import annotations

try:
    import django
except ModuleNotFoundError as error:  # pragma: no cover - tried in an environment without Django.
    raise ImportError(
        f"windlass.contrib.django needs Django ({error}): pip install 'windlass[django]'"
    ) from error

HAS_OWN_TASKS = django.VERSION >= (6, 0)
"""Whether Django brings the framework; else it is the package django-tasks."""

if HAS_OWN_TASKS:
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Django {django.get_version()} has no tasks framework of its own ({error}): "
            "pip install 'django-tasks>=0.12,<1', or use Django 6.0 or newer"
        ) from error

__all__ = [
    "HAS_OWN_TASKS",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
