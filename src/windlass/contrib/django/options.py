"""Owns the OPTIONS of a backend in TASKS: their names, their checks, and the URL of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured

from windlass.contrib.django.task_jobs.task import JOB_OPTIONS, unknown_option
from windlass.core.values.names import nearest
from windlass.settings import SettingArguments

TRANSACTION = ("join", "on_commit", "off")
SETTING_NAMES = tuple(get_type_hints(SettingArguments))


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The OPTIONS of one backend."""

    url: str | None = None
    """The store; None: WINDLASS_URL, else what follows from the database."""
    database: str = "default"
    """The alias of the database whose transactions decide about jobs."""
    transaction: str | None = None
    """`join`, `on_commit` or `off`; None: join where the jobs are in that database."""
    migrate: bool = True
    """Whether `manage.py migrate` makes and updates the store as well."""
    web_url: str | None = None
    """Where the web page is, for the entry in the admin."""
    imports: tuple[str, ...] = ()
    """Modules with tasks that a worker imports besides the `tasks` of every app."""
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of single tasks, by their paths."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of Windlass among the OPTIONS, like `concurrency`."""


OWN_NAMES = tuple(each.name for each in fields(BackendOptions) if each.name != "settings")


def read_options(alias: str, given: Mapping[str, Any]) -> BackendOptions:
    """Return the OPTIONS of a backend.

    Raises:
        ImproperlyConfigured: one is wrong; the message names the remedy.
    """
    for problem in problems_of(alias, given):
        raise ImproperlyConfigured(problem)
    own = {name: given[name] for name in OWN_NAMES if name in given}
    if "imports" in own:
        own["imports"] = tuple(own["imports"])
    others = {name: value for name, value in given.items() if name not in OWN_NAMES}
    return BackendOptions(**own, settings=others)


def problems_of(alias: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the OPTIONS of a backend, each with its remedy."""
    where = f'TASKS["{alias}"]["OPTIONS"]'
    known = (*OWN_NAMES, *SETTING_NAMES)
    for name in given:
        if name not in known:
            yield f"{where} has no option {name!r}; {_hint(name, known)}"
    database = given.get("database", "default")
    if database not in settings.DATABASES:
        yield (
            f'{where}["database"] must be an alias in DATABASES, got {database!r}; '
            f"there are: {', '.join(settings.DATABASES)}"
        )
    transaction = given.get("transaction")
    if transaction not in (None, *TRANSACTION):
        yield (
            f'{where}["transaction"] must be one of {", ".join(TRANSACTION)}, got '
            f"{transaction!r}; leave it out to join where that is possible"
        )
    if isinstance(given.get("imports"), str):
        yield f'{where}["imports"] must be a list of modules, got text; put it into a list'
    yield from _problems_of_tasks(where, given.get("tasks", {}))


def _problems_of_tasks(where: str, tasks: Any) -> Iterator[str]:
    if not isinstance(tasks, Mapping):
        yield (
            f'{where}["tasks"] must be a mapping of paths to options, got {type(tasks).__name__}; '
            'write {"shop.tasks.send": {"timeout": "30s"}}'
        )
        return
    for path, options in tasks.items():
        if not isinstance(options, Mapping):
            yield (
                f'{where}["tasks"]["{path}"] must be a mapping of options, got {options!r}; '
                'write {"timeout": "30s"}'
            )
            continue
        for name in options:
            if name not in JOB_OPTIONS:
                yield (f'{where}["tasks"]["{path}"] has no option {name!r}; {unknown_option(name)}')


def _hint(name: str, known: tuple[str, ...]) -> str:
    if name.lower() in known:
        return f"write it in lower case, {name.lower()!r}"
    if name in JOB_OPTIONS:
        return f'it is an option of tasks: "tasks": {{"shop.tasks.send": {{"{name}": ...}}}}'
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"there are: {', '.join(sorted(known))}"


def is_under_test() -> bool:
    """Return whether Django's test environment is set up, by its runner or by pytest-django."""
    return hasattr(mail, "outbox")
