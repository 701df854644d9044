"""The tasks framework that is there, for tests: Django's own, or django-tasks.

Unlike that of Windlass it does not need Windlass, so that a fault of ours is not in both.
"""

from __future__ import annotations

import django

if django.VERSION >= (6, 0):
    from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

HAS_TASK_FIELDS = django.VERSION[:2] != (6, 0)
"""Whether `@task` passes further arguments on."""

__all__ = [
    "HAS_TASK_FIELDS",
    "InvalidTask",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "default_task_backend",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
