"""Where the jobs of a project are, as its DATABASES say it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings
from psycopg import sql

from tests.contrib.django.conftest import Project, database_at, use_database
from tests.contrib.django.shop import tasks
from tests.support.django_settings import BACKEND
from tests.support.django_tasks import task_backends
from windlass.contrib.django import windlass_app
from windlass.contrib.django.database_urls import is_database, url_of_database

WRAPPED = "tests.contrib.django.wrapped_postgresql"
on_both = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
on_postgres = pytest.mark.parametrize("place", ["postgres"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Say where the project is: on SQLite, unless a test says otherwise."""
    return str(getattr(request, "param", "sqlite"))


@on_both
def test_jobs_are_in_the_database_of_the_project_or_beside_it(project: Project) -> None:
    location = windlass_app().store.location
    if project.place == "postgres":
        assert settings.DATABASES["default"]["NAME"] in location
    else:
        assert location == str(project.directory / "db.windlass.db")


def test_the_environment_wins_over_the_database(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_URL", f"sqlite:///{project.directory}/given.db")
    with project.options():
        assert windlass_app().store.location == str(project.directory / "given.db")


@pytest.fixture
def database() -> Iterator[Any]:
    before = settings.DATABASES["default"]
    yield lambda **given: use_database({"ENGINE": "django.db.backends.postgresql", **given})
    use_database(before)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        (
            {"NAME": "shop", "USER": "a@b", "PASSWORD": "p:/w", "HOST": "db", "PORT": "5433"},
            "postgresql://a%40b:p%3A%2Fw@db:5433/shop",
        ),
        (
            {"NAME": "shop", "HOST": "/run/postgresql", "PORT": 5433},
            "postgresql:///shop?host=%2Frun%2Fpostgresql&port=5433",
        ),
        (
            {"NAME": "shop", "HOST": "db1,db2", "PORT": "5433,5434"},
            "postgresql:///shop?host=db1%2Cdb2&port=5433%2C5434",
        ),
        (
            {"NAME": "shop", "ENGINE": WRAPPED, "HOST": "db"},
            "postgresql://db/shop",
        ),
        (
            {
                "NAME": "shop",
                "HOST": "db",
                "OPTIONS": {"keepalives": 0, "options": "-c jit=off", "host": "no", "x": 1},
            },
            "postgresql://db/shop?keepalives=0&options=-c%20jit%3Doff",
        ),
        (
            {"NAME": "shop", "OPTIONS": {"assume_role": "shop owner", "krbsrvname": "pg"}},
            "postgresql:///shop?krbsrvname=pg&options=-c%20role%3Dshop%5C%20owner",
        ),
        (
            {"NAME": "shop", "HOST": "::1", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://[::1]/shop?sslmode=require",
        ),
    ],
)
def test_the_url_of_a_database(database: Any, given: dict[str, Any], url: str) -> None:
    database(**given)
    assert url_of_database("default") == url
    assert is_database(url, "default")
    assert not is_database("postgresql://elsewhere/shop", "default")


def test_a_database_that_holds_no_jobs_needs_a_url(database: Any) -> None:
    database(ENGINE="django.db.backends.dummy", NAME="shop")
    with override_settings(TASKS={"default": {"BACKEND": BACKEND}}):
        (found,) = task_backends["default"].check()
    assert found.id == "windlass.E002"
    assert '["url"] must be given' in found.msg


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("/srv/shop.sqlite3", "/srv/shop.windlass.db"),
        ("/srv/blog.sqlite3", "/srv/blog.windlass.db"),
        ("/srv/shop", "/srv/shop.windlass.db"),
        ("file:/srv/my%20shop.db?cache=private", "/srv/my%20shop.windlass.db"),
    ],
)
def test_each_sqlite_database_has_a_file_of_jobs_of_its_own(
    database: Any, name: str, file: str
) -> None:
    """Prevents: two projects in one directory share their jobs."""
    database(ENGINE="django.db.backends.sqlite3", NAME=name)
    assert url_of_database("default") == f"sqlite:///{file}"


@on_postgres
def test_an_engine_that_wraps_postgresql_holds_jobs_and_joins(project: Project) -> None:
    use_database({**settings.DATABASES["default"], "ENGINE": WRAPPED})
    with project.options():
        assert connection.settings_dict["ENGINE"] == WRAPPED
        with transaction.atomic(), CaptureQueriesContext(connection) as queries:
            result = tasks.noop.enqueue()
            assert [each for each in queries.captured_queries if "-- Add jobs." in each["sql"]]
        assert windlass_app().handle(result.id).info().kind == tasks.noop.module_path


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """Give a role that the tests' user may assume."""
    role = f"{database_at(postgres_url)['NAME']} owner"
    name = sql.Identifier(role)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(sql.SQL("CREATE ROLE {}").format(name))
        db.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))
        yield role
        db.execute(sql.SQL("DROP ROLE {}").format(name))


def test_the_role_that_django_assumes_is_that_of_windlass(
    postgres_url: str, role: str, database: Any
) -> None:
    """Prevents: a joined enqueue may not write to tables of the user that logs in."""
    database(**database_at(postgres_url), OPTIONS={"assume_role": role})
    url = url_of_database("default")
    assert url is not None
    with psycopg.connect(url) as db:
        assert db.execute("SELECT current_user").fetchone() == (role,)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == (role,)
