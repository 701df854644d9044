"""Owns the system checks of a backend: wrong options, and what its store cannot promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured

from windlass.contrib.django.database_urls import is_database
from windlass.contrib.django.options import is_under_test, problems_of
from windlass.contrib.django.project_apps import ProjectApp, windlass_aliases, windlass_app
from windlass.contrib.django.task_jobs.framework import HAS_OWN_TASKS, task_backends
from windlass.contrib.django.task_jobs.task_paths import wrong_paths
from windlass.contrib.django.transaction import way_of
from windlass.core.errors import WindlassError

APP = "windlass.contrib.django"


def check_backend(
    alias: str, options: Mapping[str, Any], make_app: Callable[[], ProjectApp]
) -> Iterator[CheckMessage]:
    """Check one backend in TASKS."""
    yield from _check_installed()
    problems = list(problems_of(alias, options))
    if "." in alias or ":" in alias:
        problems.append(
            f"the alias {alias!r} in TASKS must have neither a dot nor a colon, since a worker "
            "finds its app by it; rename it"
        )
    for problem in problems:
        message, _, remedy = problem.partition("; ")
        yield Error(message, hint=remedy or None, id="windlass.E001")
    if problems:
        return
    try:
        app = make_app()
        yield from _check_transactions(app)
        yield from _check_shared_store(app)
        yield from _check_paths(app)
    except (ImproperlyConfigured, WindlassError) as error:
        yield Error(str(error), id="windlass.E002")


def _check_installed() -> Iterator[CheckMessage]:
    if not apps.is_installed(APP):
        yield CheckWarning(
            f"{APP!r} is not in INSTALLED_APPS, so there is no `manage.py windlass`, and "
            "`manage.py migrate` does not make the store.",
            hint=f"Add {APP!r} to INSTALLED_APPS.",
            id="windlass.W001",
        )
    if not HAS_OWN_TASKS and not apps.is_installed("django_tasks"):
        yield CheckWarning(
            "'django_tasks' is not in INSTALLED_APPS, so its checks and its log lines are missing.",
            hint="Add 'django_tasks' to INSTALLED_APPS.",
            id="windlass.W002",
        )


def _check_transactions(app: ProjectApp) -> Iterator[CheckMessage]:
    if is_under_test():
        return  # The store is in memory there, whatever the settings say.
    where = f'TASKS["{app.alias}"]'
    transactional = app.store.capabilities.transactional
    if app.options.transaction == "join" and not transactional:
        yield Error(
            f'{where}["OPTIONS"]["transaction"] must not be "join": its store, '
            f"{app.store.location}, cannot take part in a transaction of Django's.",
            hint='Use a postgresql:// URL, or leave out "transaction".',
            id="windlass.E003",
        )
    elif way_of(app) == "on_commit":
        yield CheckWarning(
            f"{where} enqueues after Django's commit, not in it: its store, {app.store.location}, "
            f"{_why_not(app)} If the process dies, or the store is away, "
            "between the two, the data is committed and the job is lost: a store that is away is "
            "logged as enqueue.failed, and the result of the enqueue is FAILED.",
            hint=_remedy(app),
            id="windlass.W003",
        )
    elif way_of(app) == "off":
        yield Info(
            f"{where} enqueues at once, whether Django's transaction is committed or not.",
            hint='Leave out "transaction" unless the tasks do not read what is not committed yet.',
            id="windlass.I001",
        )
    if not app.store.capabilities.shared and not settings.DEBUG:
        yield CheckWarning(
            f"{where} keeps its jobs in the memory of one process, where no worker sees them.",
            hint='Set OPTIONS["url"], like "sqlite:////var/lib/shop/windlass.db".',
            id="windlass.W004",
        )


def _check_shared_store(app: ProjectApp) -> Iterator[CheckMessage]:
    """Warn if an earlier backend has the same store: by default both follow from one database."""
    if not app.store.capabilities.shared:
        return
    for alias in windlass_aliases()[: windlass_aliases().index(app.alias)]:
        try:
            is_same = windlass_app(alias).store.location == app.store.location
        except (ImproperlyConfigured, WindlassError):
            continue  # The check of that backend says so.
        if is_same and (queues := _common_queues(alias, app.alias)):
            yield CheckWarning(
                f'TASKS["{app.alias}"] keeps its jobs in the store of TASKS["{alias}"], '
                f"{app.store.location}, and both have {queues}: a worker of one also runs the "
                "tasks of the other, with its own options.",
                hint='Give each its own OPTIONS["url"], or OPTIONS["schema"] on PostgreSQL, or '
                "QUEUES that have no name in common.",
                id="windlass.W005",
            )


def _check_paths(app: ProjectApp) -> Iterator[CheckMessage]:
    for path, reason, remedy in wrong_paths(app):
        yield Error(
            f'TASKS["{app.alias}"]["OPTIONS"]["tasks"] must have paths of tasks as its keys, got '
            f"{path!r} ({reason}).",
            hint=remedy,
            id="windlass.E004",
        )


def _common_queues(alias: str, other: str) -> str:
    """Return the queues that two backends have in common, for people; no QUEUES are all queues."""
    first, second = task_backends[alias].queues, task_backends[other].queues
    if not first and not second:
        return "all queues"
    common = first & second if first and second else first or second
    return ", ".join(f"the queue {each!r}" for each in sorted(common))


def _why_not(app: ProjectApp) -> str:
    if not app.store.capabilities.transactional:
        return "is not the database of that transaction."
    if is_database(app.settings.url, app.options.database):
        return f'could join, but "transaction" is {app.options.transaction!r}.'
    return f"is not the database {app.options.database!r}, as far as their names tell."


def _remedy(app: ProjectApp) -> str:
    if app.store.capabilities.transactional:
        return (
            'Name the right alias with OPTIONS["database"], or set OPTIONS["transaction"] to '
            '"join" if both are the same database.'
        )
    return (
        "Keep the jobs in the PostgreSQL database of the project, or silence this with "
        'SILENCED_SYSTEM_CHECKS = ["windlass.W003"] if such a loss is acceptable.'
    )
