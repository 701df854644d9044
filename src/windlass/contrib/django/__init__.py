"""Windlass for Django: a backend of Django's tasks framework, with workers, tests and the admin.

`TASKS = {"default": {"BACKEND": "windlass.contrib.django.WindlassBackend"}}`
"""

from windlass.contrib.django.backend import WindlassBackend
from windlass.contrib.django.project_apps import windlass_app
from windlass.contrib.django.task_jobs.task import WindlassTask

__all__ = ["WindlassBackend", "WindlassTask", "windlass_app"]
