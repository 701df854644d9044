"""Puts the shop on a database and a store of its own for each test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, connections
from django.test.utils import override_settings

from tests.support.django_settings import BACKEND, configure_django
from tests.support.postgres.fixtures import migrated_url, postgres_url
from tests.support.postgres.scratch import Prepare
from windlass import Retry
from windlass.store.postgres import PostgresStore

configure_django()

# After the configuration: Django's models and tasks need it.
from tests.contrib.django.shop import tasks  # noqa: E402
from tests.contrib.django.shop.models import Order  # noqa: E402
from windlass.contrib.django import windlass_app  # noqa: E402
from windlass.contrib.django.project import register_tasks  # noqa: E402

__all__ = ["migrated_url", "postgres_url"]


class Project:
    """A project on a database of its own."""

    def __init__(self, place: str, directory: Path) -> None:
        self.place = place
        self.directory = directory

    @property
    def app(self) -> Any:
        return windlass_app()

    def work(self, *, alias: str = "default", **flags: Any) -> None:
        """Run the jobs that are due, in a worker inside this process."""
        app = windlass_app(alias)
        register_tasks(app)
        app.run_worker(burst=True, metrics_port=0, **flags)

    def work_until_finished(self, result: Any) -> None:
        """Run jobs until that of a result has ended; its attempts may have to wait."""
        until = time.monotonic() + 60
        while not result.is_finished:
            assert time.monotonic() < until
            self.work()
            result.refresh()

    @contextmanager
    def tasks_setting(self, **backends: Any) -> Iterator[None]:
        """Replace TASKS; each backend is given by what it has besides its class."""
        configured = {
            alias: {"BACKEND": BACKEND, "QUEUES": [], **each} for alias, each in backends.items()
        }
        with override_settings(TASKS=configured):
            try:
                yield
            finally:
                for alias in configured:
                    windlass_app(alias).close()

    @contextmanager
    def options(self, **options: Any) -> Iterator[None]:
        """Replace the OPTIONS of the only backend."""
        with self.tasks_setting(default={"OPTIONS": options}):
            yield


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """Give the shop on SQLite with a file of jobs beside it, or on PostgreSQL with both."""
    if place == "postgres":
        database = database_at(request.getfixturevalue("migrated_url"))
    else:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "db.sqlite3"}
    before = settings.DATABASES["default"]
    use_database(database)
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    tasks.seen.clear()
    shop = Project(place, tmp_path)
    # Kept out of the worker's log: they are for a person who tunes a machine.
    with shop.options(max_retries=0):
        yield shop
    use_database(before)


def retry_at_once() -> Retry:
    """Return retries that hardly wait."""
    return Retry(max_retries=3, initial="10ms", max_delay="10ms")


def database_at(url: str) -> dict[str, Any]:
    """Return the entry of DATABASES for a URL of PostgreSQL."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path[1:]),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }


def use_database(database: dict[str, Any]) -> None:
    """Let Django use another database, in this thread and in those that come."""
    drop_connection()
    asyncio.run(sync_to_async(drop_connection)())  # That of coroutines.
    complete = connections.configure_settings({"default": dict(database)})["default"]
    settings.DATABASES["default"] = connections.settings["default"] = complete


def drop_connection() -> None:
    """Forget the connection of this thread."""
    connections["default"].close()
    del connections["default"]


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give the function that makes the schema."""
    return migrate


def migrate(url: str) -> None:
    async def run() -> None:
        store = PostgresStore(url)
        await store.migrate()
        await store.close()

    asyncio.run(run())
