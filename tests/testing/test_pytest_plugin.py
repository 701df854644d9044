"""The pytest plugin gives fixtures, and keeps the jobs of tests out of the program's store."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

SHOP = """
from windlass import Windlass
app = Windlass({url})

@app.job
def send(to: str) -> str:
    return to
"""
TRAVELS = """
from shop import app, send

def test_travel(windlass_app, jobs):
    assert windlass_app is app
    send.using(delay="30d").enqueue("ada")
    assert jobs.advance("29d") == 0
    assert jobs.advance("1d") == 1
    jobs.assert_completed(send, count=1)

def test_is_empty_again(jobs):
    jobs.assert_not_enqueued(send)
    assert jobs.advance("60d") == 0
"""
FORGETS = """
from shop import send

def test_forgets():
    assert send.enqueue("ada").state() == "pending"
"""


class Project:
    """A project with tests, and a pytest in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def test(self, test: str, *, ini: str = "", url: str = "", **env: str) -> tuple[int, str]:
        """Run a test of the project; return the exit code and what was said."""
        (self.directory / "shop.py").write_text(SHOP.format(url=url))
        (self.directory / "test_shop.py").write_text(test)
        (self.directory / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{ini}\n")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WINDLASS_", "PYTEST"))}
        plugin = ["-p", "windlass.testing.pytest_plugin"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugin],
            cwd=self.directory,
            env={**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    @property
    def stores(self) -> list[str]:
        """The stores that the project has now."""
        return sorted(each.name for each in self.directory.glob("*.db"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_pytest_finds_it_by_its_entry_point() -> None:
    (found,) = entry_points(group="pytest11", name="windlass")
    assert found.value == "windlass.testing.pytest_plugin"


def test_the_fixtures_travel_in_the_app_that_the_configuration_names(project: Project) -> None:
    code, said = project.test(TRAVELS, ini="windlass_app = shop:app")
    assert code == 0, said
    assert project.stores == []


def test_the_fixtures_travel_in_the_app_that_the_environment_names(project: Project) -> None:
    code, said = project.test(TRAVELS, WINDLASS_APP="shop:app")
    assert code == 0, said


def test_a_fixture_of_the_project_replaces_the_app(project: Project) -> None:
    (project.directory / "conftest.py").write_text(
        "import pytest, shop\n@pytest.fixture\ndef windlass_app():\n    return shop.app\n"
    )
    code, said = project.test(TRAVELS)
    assert code == 0, said


@pytest.mark.parametrize(
    ("ini", "remedy"),
    [
        ("", "write it like shop.jobs:app"),
        ("windlass_app = shop", "write it like shop.jobs:app"),
        ("windlass_app = shop:jobs", "shop has no app 'jobs'"),
    ],
)
def test_an_app_that_is_not_named_is_asked_for(project: Project, ini: str, remedy: str) -> None:
    code, said = project.test(TRAVELS, ini=ini)
    assert code != 0
    assert remedy in said


@pytest.mark.parametrize("url", ["", '"sqlite:///windlass.db"'])
def test_a_test_that_forgets_the_fixtures_leaves_the_real_store_alone(
    project: Project, url: str
) -> None:
    code, said = project.test(FORGETS, url=url)
    assert code == 0, said
    assert project.stores == []


@pytest.mark.parametrize(
    ("file", "text"),
    [(".env", "WINDLASS_URL=sqlite:///real.db"), ("windlass.toml", 'url = "sqlite:///real.db"')],
)
def test_a_store_that_a_file_names_is_left_alone_too(
    project: Project, file: str, text: str
) -> None:
    (project.directory / file).write_text(text)
    code, said = project.test(FORGETS)
    assert code == 0, said
    assert project.stores == []
    code, said = project.test(FORGETS, ini="windlass_real_store = true")
    assert code == 0, said
    assert project.stores == ["real.db"]


def test_a_store_that_code_or_the_environment_names_is_used(project: Project) -> None:
    assert project.test(FORGETS, url='"sqlite:///code.db"')[0] == 0
    assert project.test(FORGETS, WINDLASS_URL="sqlite:///shell.db")[0] == 0
    assert project.stores == ["code.db", "shell.db"]


def test_a_project_that_uses_nothing_of_it_sees_nothing_of_it(project: Project) -> None:
    own = "import pytest\n@pytest.fixture\ndef jobs():\n    return 7\n"
    code, said = project.test(f"{own}\ndef test_own(jobs):\n    assert jobs == 7\n")
    assert code == 0, said
    assert "windlass" not in said.lower()
