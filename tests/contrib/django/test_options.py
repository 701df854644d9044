"""OPTIONS: what they do, what is wrong with them, and what `manage.py check` says."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test.utils import override_settings

from tests.contrib.django.conftest import Project
from tests.contrib.django.shop import tasks
from tests.support.django_settings import BACKEND
from tests.support.django_tasks import HAS_TASK_FIELDS, task, task_backends
from windlass import Retry, Windlass
from windlass.contrib.django import windlass_app
from windlass.contrib.django.task_jobs.task import JOB_OPTIONS

SHOP = "tests.contrib.django.shop"
SEND = f"{SHOP}.tasks.note"


on_both = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Say where the project is: on SQLite, unless a test says otherwise."""
    return str(getattr(request, "param", "sqlite"))


def messages(**options: Any) -> list[tuple[str, str, str]]:
    """Return what the checks say about OPTIONS: id, message and hint of each."""
    backends = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}
    with override_settings(TASKS=backends):
        return [(each.id, each.msg, each.hint or "") for each in task_backends["default"].check()]


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"concurency": 5}, "has no option 'concurency'", "did you mean 'concurrency'?"),
        ({"URL": "memory://"}, "has no option 'URL'", "write it in lower case, 'url'"),
        ({"unique": "id"}, "has no option 'unique'", "it is an option of tasks"),
        ({"database": "jobs"}, "must be an alias in DATABASES, got 'jobs'", "there are: default"),
        ({"transaction": "auto"}, "must be one of join, on_commit, off", "leave it out"),
        ({"imports": "shop.jobs"}, "must be a list of modules", "put it into a list"),
        ({"tasks": ["a"]}, "must be a mapping of paths to options, got list", "write {"),
        ({"tasks": {SEND: "30s"}}, "must be a mapping of options, got '30s'", "write {"),
        ({"tasks": {SEND: {"timout": 1}}}, "has no option 'timout'", "did you mean 'timeout'?"),
        ({"tasks": {SEND: {"queue": "a"}}}, "has no option 'queue'", "set queue_name"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(
    project: Project, options: dict[str, Any], message: str, hint: str
) -> None:
    (found,) = messages(**options)
    assert found[0] == "windlass.E001"
    assert message in found[1]
    assert hint in found[2]
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": options}}):
        with pytest.raises(ImproperlyConfigured, match="TASKS"):
            tasks.add.enqueue(1)
        with pytest.raises(SystemCheckError, match=r"windlass\.E001"):
            call_command("check")


@pytest.mark.parametrize(
    ("path", "reason", "hint"),
    [
        ("tasks.nte", "does not define", f"did you mean '{SEND}'?"),
        ("task.note", "ModuleNotFoundError", f"did you mean '{SEND}'?"),
        ("models.Order", "it is a ModelBase", ""),
        ("unimportable.note", "LookupError: there is no such printer", ""),
        ("again.note", "the task is made elsewhere", f"write '{SEND}'"),
    ],
)
def test_options_of_a_task_that_does_not_exist_are_reported(
    project: Project, path: str, reason: str, hint: str
) -> None:
    """Prevents: a typo in the path of a task, whose timeout is then silently not used."""
    found = messages(transaction="off", tasks={f"{SHOP}.{path}": {"timeout": "5s"}})
    ((name, message, remedy),) = [each for each in found if each[0] != "windlass.I001"]
    assert name == "windlass.E004"
    assert f"got '{SHOP}.{path}' (" in message
    assert reason in message
    assert hint in remedy


def test_options_of_tasks_that_exist_are_not_reported(project: Project) -> None:
    found = messages(transaction="off", tasks={SEND: {"timeout": "5s"}})
    assert [each[0] for each in found] == ["windlass.I001"]


def test_a_wrong_setting_of_windlass_is_named(project: Project) -> None:
    (found,) = messages(url="memory://", concurrency="many")
    assert found[0] == "windlass.E002"
    assert "concurrency=...) must be a whole number" in found[1]


def test_a_wrong_option_of_a_task_is_named_when_the_task_is_made(project: Project) -> None:
    with (
        project.options(tasks={SEND: {"key": "nobody"}}),
        pytest.raises(ImproperlyConfigured, match=rf"the task {SEND}: .*'nobody'"),
    ):
        tasks.note.enqueue(1)


def test_settings_of_windlass_are_options(project: Project) -> None:
    with project.options(concurrency=7, timeout="5s"):
        assert windlass_app().settings.concurrency.fixed
        assert windlass_app().settings.timeout.total_seconds() == 5


def test_options_of_tasks_are_those_of_jobs(project: Project) -> None:
    options = {
        "retry": Retry(max_retries=9),
        "timeout": "7s",
        "key": "value",
        "concurrency": 2,
        "tags": ["billing"],
        "aliases": ["shop.send"],
    }
    with project.options(tasks={SEND: options}):
        result = tasks.note.enqueue("ada")
        registration = windlass_app().registry[SEND]
        assert registration.retry.max_retries == 9
        assert registration.timeout_or(None).total_seconds() == 7  # type: ignore[arg-type, union-attr]
        job = windlass_app().handle(result.id).info()
        assert (job.key, job.tags) == ("ada", ("billing",))
        old = windlass_app().producer("shop.send").enqueue({"value": "by its old name"})
        project.work()
        assert sorted(tasks.seen) == ["ada", "by its old name"]
        assert tasks.note.get_result(str(old.id)).return_value == "by its old name"


@pytest.mark.skipif(not HAS_TASK_FIELDS, reason="Django 6.0 passes no options of @task on")
def test_options_of_tasks_are_fields_of_the_task(project: Project) -> None:
    made = task(timeout="7s", max_retries=9, unique="value")(tasks.note.func)
    assert (made.timeout, made.unique, made.using(priority=1).max_retries) == ("7s", "value", 9)
    with project.options():
        made.enqueue("a")
        registration = windlass_app().registry[SEND]
        assert (registration.retry.max_retries, registration.identity.unique is None) == (9, False)
    with project.options(tasks={SEND: {"max_retries": 2}}):
        made.enqueue("a")
        assert windlass_app().registry[SEND].retry.max_retries == 2


def test_every_option_of_jobs_is_one_of_tasks() -> None:
    """Prevents: an option of `@app.job` that a Django project cannot use."""
    from msgspec.structs import fields

    from windlass.app.registration.job_options import JobOptions

    elsewhere = {"name", "queue", "priority", "middleware", "batch_size", "batch_timeout"}
    assert {each.name for each in fields(JobOptions)} - elsewhere == set(JOB_OPTIONS)


def test_a_task_without_a_timeout_has_none(project: Project) -> None:
    with project.options(tasks={SEND: {"timeout": 0}}):
        tasks.note.enqueue(1)
        assert windlass_app().registry[SEND].timeout is None


def test_an_alias_without_a_windlass_backend_has_no_app(project: Project) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"Windlass backends are: default"):
        windlass_app("nobody")


def test_the_app_is_the_same_for_all_threads(project: Project) -> None:
    import threading

    found: list[Windlass] = []
    threads = [threading.Thread(target=lambda: found.append(windlass_app())) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [windlass_app()] * 4


# -- what the store cannot promise -----------------------------------------------------------------


@on_both
def test_checks_say_what_is_lost_without_a_joint_transaction(project: Project) -> None:
    found = messages()
    if project.place == "postgres":
        assert found == []
    else:
        ((name, message, hint),) = found
        assert name == "windlass.W003"
        assert "the data is committed and the job is lost" in message
        assert "PostgreSQL database of the project" in hint


def test_two_backends_with_one_store_and_a_common_queue_are_reported_once(
    project: Project,
) -> None:
    """Prevents: two backends without a URL share their jobs, and nothing says so."""
    assert shared_stores(QUEUES=[]) == ["all queues"]
    assert shared_stores(QUEUES=["mail", "slow"]) == ["the queue 'mail', the queue 'slow'"]
    own = {"url": f"sqlite:///{project.directory}/second.db"}
    assert shared_stores(QUEUES=[], OPTIONS=own) == []


def test_backends_with_one_store_and_queues_of_their_own_are_not_reported(
    project: Project,
) -> None:
    assert shared_stores(["default"], QUEUES=["mail"]) == []
    assert shared_stores(["default", "mail"], QUEUES=["mail"]) == ["the queue 'mail'"]


def shared_stores(first: list[str] | None = None, **second: Any) -> list[str]:
    """Return the queues that the checks of two backends report as common."""
    backends = {
        "default": {"BACKEND": BACKEND, "QUEUES": first or []},
        "second": {"BACKEND": BACKEND, **second},
    }
    with override_settings(TASKS=backends):
        found = [each for alias in backends for each in task_backends[alias].check()]
    said = [each.msg for each in found if each.id == "windlass.W005"]
    return [each.partition("both have ")[2].partition(":")[0] for each in said]


def test_join_is_refused_for_a_store_that_cannot_join(project: Project) -> None:
    (found,) = messages(url=f"sqlite:///{project.directory}/jobs.db", transaction="join")
    assert found[0] == "windlass.E003"


def test_jobs_in_memory_are_seen_by_no_worker(project: Project) -> None:
    assert [each[0] for each in messages(url="memory://")] == ["windlass.W003", "windlass.W004"]


def test_off_is_mentioned(project: Project) -> None:
    assert [each[0] for each in messages(transaction="off")] == ["windlass.I001"]


def test_an_app_that_is_not_installed_is_missed(project: Project) -> None:
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
        found = {each[0]: each[2] for each in messages(transaction="off")}
    assert "windlass.contrib.django" in found["windlass.W001"]


def test_an_alias_that_no_worker_could_name_is_refused(project: Project) -> None:
    with override_settings(TASKS={"a.b": {"BACKEND": BACKEND}}):
        (found,) = task_backends["a.b"].check()
    assert found.id == "windlass.E001"
