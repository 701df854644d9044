"""A whole Django project in processes of its own: its commands, its workers, its tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.django.conftest import database_at

BOOKSHOP = Path(__file__).parent / "bookshop"


class Bookshop:
    """The project, on data of its own."""

    def __init__(self, directory: Path, database: dict[str, Any]) -> None:
        self.directory = directory
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("WINDLASS_")}
        self.environment = {
            **kept,
            "BOOKSHOP_DATABASE": json.dumps(database),
            "PYTHONWARNINGS": "error",
            "WINDLASS_METRICS_PORT": "0",
            "COLUMNS": "200",
        }

    def manage(self, *arguments: str, fails: bool = False, **environment: Any) -> str:
        """Run `manage.py` from another directory than its own, and return what it wrote."""
        done = subprocess.run(
            [sys.executable, str(BOOKSHOP / "manage.py"), *arguments],
            cwd=self.directory,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == (1 if fails else 0), f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def shell(self, program: str, **environment: Any) -> Any:
        """Run a line in the project's shell, and return the last JSON document it printed."""
        said = self.manage("shell", "-v0", "-c", f"import json; {program}", **environment)
        return json.loads(said.splitlines()[-1])


@pytest.fixture(params=["sqlite", "postgres"])
def bookshop(request: pytest.FixtureRequest, tmp_path: Path) -> Bookshop:
    if request.param == "postgres":
        database = database_at(request.getfixturevalue("postgres_url"))
    else:
        name = str(tmp_path / "db.sqlite3")
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": name}
    return Bookshop(tmp_path, database)


on_sqlite = pytest.mark.parametrize("bookshop", ["sqlite"], indirect=True)


def test_a_project_migrates_enqueues_and_works(bookshop: Bookshop) -> None:
    bookshop.manage("migrate", "--run-syncdb")
    bookshop.manage("check", "--fail-level", "ERROR")
    ids = bookshop.shell(
        "from books.tasks import order, aorder, lose; "
        "print(json.dumps([order.enqueue('Emma', copies=2).id, aorder.enqueue('Persuasion').id, "
        "lose.enqueue('Sanditon').id]))"
    )
    bookshop.manage("windlass", "worker", "--burst")
    results = bookshop.shell(
        "from books.models import Book; from windlass.contrib.django import windlass_app; "
        f"found = [windlass_app().handle(each).info() for each in {ids}]; "
        "print(json.dumps([[each.state for each in found], "
        "sorted(Book.objects.values_list('title', 'copies'))]))"
    )
    assert results == [["completed", "completed", "dead"], [["Emma", 2], ["Persuasion", 1]]]
    listed = json.loads(bookshop.manage("windlass", "jobs", "list", "--json"))
    kinds = {job["kind"] for job in listed["jobs"]}
    assert kinds == {"books.tasks.order", "books.tasks.aorder", "books.tasks.lose"}


def test_the_tests_of_the_project_pass(bookshop: Bookshop) -> None:
    said = bookshop.manage("test", "books", "--noinput")
    assert "Ran 14 tests" in said
    assert not list(bookshop.directory.glob("*windlass.db*"))


@on_sqlite
def test_an_isolated_task_runs_in_a_child_process(bookshop: Bookshop) -> None:
    isolated: dict[str, Any] = {
        "BOOKSHOP_OPTIONS": '{"tasks": {"books.tasks.where": {"isolate": true}}}'
    }
    bookshop.manage("migrate", "--run-syncdb", **isolated)
    bookshop.shell(
        "from books.tasks import where, order; where.enqueue(); order.enqueue('Emma'); print('0')",
        **isolated,
    )
    bookshop.manage("windlass", "worker", "--burst", **isolated)
    found = json.loads(bookshop.manage("windlass", "jobs", "list", "--json", **isolated))
    assert {job["state"] for job in found["jobs"]} == {"completed"}


@on_sqlite
def test_commands_go_to_the_backend_that_is_named(bookshop: Bookshop) -> None:
    second: dict[str, Any] = {"BOOKSHOP_SECOND": f"sqlite:///{bookshop.directory}/second.db"}
    bookshop.manage("migrate", "--run-syncdb", **second)
    bookshop.shell(
        "from books.tasks import order; order.using(backend='second').enqueue('Emma'); print('0')",
        **second,
    )
    first = bookshop.manage("windlass", "jobs", "list", "--json", **second)
    assert json.loads(first)["jobs"] == []
    bookshop.manage("windlass", "--backend", "second", "worker", "--burst", **second)
    listed = bookshop.manage("windlass", "jobs", "list", "--json", "--backend=second", **second)
    assert [job["state"] for job in json.loads(listed)["jobs"]] == ["completed"]
    said = bookshop.manage("windlass", "--backend", "third", "jobs", "list", fails=True, **second)
    assert "--backend must be one of default, second, got 'third'" in said


@on_sqlite
def test_tasks_that_cannot_be_imported_stop_the_worker_with_the_reason(bookshop: Bookshop) -> None:
    bookshop.manage("migrate", "--run-syncdb")
    said = bookshop.manage("windlass", "worker", "--burst", fails=True, BOOKSHOP_BROKEN="1")
    assert "importing the tasks of this project failed" in said
    assert "there is no such printer" in said
    assert "Traceback" not in said


@on_sqlite
def test_a_wrong_option_stops_every_command_with_its_remedy(bookshop: Bookshop) -> None:
    wrong: dict[str, Any] = {"BOOKSHOP_OPTIONS": '{"concurency": 5}'}
    for command in (["check"], ["migrate"]):
        said = bookshop.manage(*command, fails=True, **wrong)
        assert "did you mean 'concurrency'?" in said
    said = bookshop.manage("windlass", "worker", "--burst", fails=True, **wrong)
    assert "did you mean 'concurrency'?" in said


@on_sqlite
def test_a_store_that_does_not_exist_names_the_command_that_makes_it(bookshop: Bookshop) -> None:
    said = bookshop.manage("windlass", "jobs", "list", fails=True)
    assert "windlass migrate" in said


@on_sqlite
def test_call_command_raises_if_windlass_fails(bookshop: Bookshop) -> None:
    program = (
        "from django.core.management import call_command, CommandError\n"
        "call_command('windlass', 'migrate')\n"
        "try:\n    call_command('windlass', 'jobs', 'show', '0')\n"
        "except CommandError as error:\n    print('raised:', error)\n"
    )
    assert "raised: windlass ended with" in bookshop.manage("shell", "-c", program)
