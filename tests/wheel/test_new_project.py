"""Projects that the wheel's `windlass new` writes install themselves from nothing, and work."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.redis_server import RedisServer
from tests.wheel.conftest import installed
from tests.wheel.environments import HERE, Environment, Wanted, interpreter


class Project(NamedTuple):
    """What is written, by which Python, and how a person works with it."""

    python: str
    options: tuple[str, ...]
    producer: tuple[str, ...] = ("-m", "shop.accounts", "ada@example.org")
    windlass: tuple[str, ...] = ("-m", "windlass")


PROJECTS = {
    "sqlite": Project(HERE, ()),
    "postgres-fastapi-web": Project(HERE, ("--store", "postgres", "--with", "fastapi,web")),
    "redis-django": Project(
        HERE,
        ("--store", "redis", "--with", "django"),
        ("manage.py", "sign_up", "ada@example.org"),
        ("manage.py", "windlass"),
    ),
}
"""Every store and every framework once; tests/cli/new has every combination, not installed."""


class Team:
    """Somebody who works on the project, in its directory and with its own environment."""

    def __init__(self, environment: Environment, wheel: Path, place: Path, url: str) -> None:
        self.place = place
        kept = {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
        wheels = [str(wheel.parent), *kept.get("PIP_FIND_LINKS", "").split()]
        self.environment = {
            **kept,
            **environment.variables(),
            "PIP_FIND_LINKS": " ".join(wheels),
            "PYTHON": str(interpreter(environment.wanted.python)),
            **({"WINDLASS_URL": url} if url else {}),
        }

    def run(self, *command: str) -> str:
        """Run a command, and return what it wrote to stdout."""
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


@pytest.mark.timeout(1_200)  # It installs mypy, ruff and a framework from nothing.
@pytest.mark.parametrize("name", PROJECTS)
def test_a_new_project_installs_checks_and_tests_itself_and_runs_a_job(
    name: str, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = PROJECTS[name]
    environment = installed(Wanted(project.python), wheel)
    said = environment.run("windlass", "new", "shop", *project.options, cwd=tmp_path, env={})
    assert said.returncode == 0, said.stderr
    team = Team(environment, wheel, tmp_path / "shop", _url(name, request))
    python = str(team.place / ".venv/bin/python")
    team.run("make", "check")
    team.run("make", "migrate")
    team.run("make", "test")
    job = team.run(python, *project.producer).strip()
    team.run(python, "-m", "shop", "--burst")
    shown = json.loads(team.run(python, *project.windlass, "jobs", "show", job, "--json"))
    assert shown["state"] == "completed"


def _url(name: str, request: pytest.FixtureRequest) -> str:
    if name.startswith("postgres"):
        return str(request.getfixturevalue("postgres_url"))
    return str(request.getfixturevalue("own_redis").url) if name.startswith("redis") else ""


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis") as server:
        yield server
