"""`litestar windlass` runs any command of Windlass for the app of the application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass import State, Windlass
from windlass.contrib.litestar.command import prepared

PROGRAM = """
from litestar import Litestar
from windlass import Windlass
from windlass.contrib.litestar import WindlassPlugin

jobs = Windlass("sqlite:///shop.db", max_retries=0)

@jobs.job
def plain() -> None: ...

@jobs.job(isolate=True)
def apart() -> None: ...
"""
FACTORY = (
    "\ndef create_app() -> Litestar:\n    return Litestar([], plugins=[WindlassPlugin(jobs)])\n"
)
INSTANCE = "\napp = Litestar([], plugins=[WindlassPlugin(jobs)])\n"


def litestar(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    unset = ("LITESTAR_APP", "WINDLASS_APP", "WINDLASS_URL")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-m", "litestar", *arguments],
        cwd=directory,
        env={**kept, "WINDLASS_METRICS_PORT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_the_command_names_the_application_to_other_processes() -> None:
    command, environment = prepared("shop:create_app", ("jobs", "list", "--json"))
    assert command[-5:] == ["-m", "windlass", "jobs", "list", "--json"]
    assert environment["LITESTAR_APP"] == "shop:create_app"
    assert environment["WINDLASS_APP"] == "windlass.contrib.litestar.project:jobs"


@pytest.mark.parametrize(
    ("file", "text", "flags"),
    [("program.py", FACTORY, ("--app", "program:create_app")), ("app.py", INSTANCE, ())],
    ids=["factory", "discovered"],
)
def test_the_command_runs_a_worker_of_the_application(
    tmp_path: Path, file: str, text: str, flags: tuple[str, ...]
) -> None:
    (tmp_path / file).write_text(PROGRAM + text)
    store = Windlass(f"sqlite:///{tmp_path}/shop.db")
    handles = [store.producer(kind).enqueue({}) for kind in ("plain", "apart")]
    done = litestar(tmp_path, *flags, "windlass", "worker", "--burst")
    assert done.returncode == 0, done.stderr
    assert [each.state() for each in handles] == [State.COMPLETED] * 2, done.stderr
    store.close()


def test_the_help_of_a_command_is_that_of_windlass(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM + INSTANCE)
    shown = litestar(tmp_path, "windlass", "worker", "--help")
    assert "--concurrency" in shown.stdout, shown.stdout + shown.stderr


def test_an_application_without_the_plugin_has_no_such_command(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from litestar import Litestar\napp = Litestar([])\n")
    done = litestar(tmp_path, "windlass", "worker")
    assert done.returncode == 2
    assert "No such command" in done.stderr


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("app:app", "the Litestar application app:app has no Windlass app; add WindlassPlugin"),
        ("app", "LITESTAR_APP must be module:application, got 'app'"),
        ("app:nothing", "LITESTAR_APP must name a Litestar application, got 'app:nothing'"),
    ],
)
def test_a_place_without_an_app_is_reported_in_a_sentence(
    tmp_path: Path, place: str, why: str
) -> None:
    (tmp_path / "app.py").write_text("from litestar import Litestar\napp = Litestar([])\n")
    command, environment = prepared(place, ("jobs", "list"))
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode != 0
    assert why in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
