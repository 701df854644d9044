"""Owns `WindlassTask`: a task with the options of a job as its fields, and those of the settings.

`@task(timeout="30s")` sets a field on Django 6.1 and with django-tasks. Django 6.0 passes no
options on: there, and wherever they belong to a deployment, they are in `OPTIONS["tasks"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from windlass.app.registration.job_options import DEFAULT
from windlass.contrib.django.task_jobs.framework import Task
from windlass.core.failures.error_classes import Classes
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.unique import Unique
from windlass.core.policies.breaker import Breaker
from windlass.core.policies.fairness import Weights
from windlass.core.policies.keys import Key
from windlass.core.policies.limit import Per
from windlass.core.values.durations import Duration
from windlass.core.values.names import nearest
from windlass.core.values.sizes import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class WindlassTask(Task):
    """A task of a Windlass backend; every field below is an option of `@app.job`.

    A field that is None is not given. `timeout=0` stands for no timeout, which `@app.job` writes
    as `timeout=None`.
    """

    aliases: Sequence[str] | None = None
    retry: Retry | None = None
    max_retries: int | None = None
    errors: Classes | None = None
    timeout: Duration | None = None
    grace: Duration | None = None
    key: Key | None = None
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    per: Per | None = None
    limit: str | None = None
    units: int | None = None
    ordered: bool | None = None
    breaker: Breaker | str | None = None
    fair_by: Key | None = None
    weights: Weights | None = None
    slo: Duration | None = None
    unique: Key | Unique | None = None
    idempotency_key: Key | None = None
    idempotent: Literal["result"] | None = None
    tags: Sequence[str] | None = None
    isolate: bool | None = None
    cpu_bound: bool | None = None
    memory: Size | None = None


JOB_OPTIONS = tuple(
    each.name
    for each in fields(WindlassTask)
    if each.name not in {inherited.name for inherited in fields(Task)}
)
"""The names of the options that a task may have, as fields or in the settings."""


def job_options(task: Any, configured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options of a task for `@app.job`; those of the settings win over its fields.

    `configured` is `OPTIONS["tasks"]`: options by the path of a task.
    """
    own = {name: getattr(task, name, None) for name in JOB_OPTIONS}
    given = {**own, **configured.get(task.module_path, {})}
    options = {name: value for name, value in given.items() if value is not None}
    if options.get("timeout", DEFAULT) == 0:
        options["timeout"] = None
    return options


def unknown_option(name: str) -> str:
    """Return the remedy for an option that a task cannot have."""
    if name in ("queue", "priority", "name"):
        return "set queue_name and priority with @task; the kind is the path of the function"
    near = nearest(name, JOB_OPTIONS)
    return f"did you mean {near!r}?" if near else f"there are: {', '.join(JOB_OPTIONS)}"
