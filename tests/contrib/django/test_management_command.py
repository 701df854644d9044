"""`manage.py windlass`: the command and the environment of the process that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.contrib.django.conftest import Project
from windlass.contrib.django.management.commands.windlass import prepared

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
def exported(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give PYTHONPATH as manage.py exports it: it has one directory in front, and one behind."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "config")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "given"))
    program = [sys.executable, "-c", "import sys; print('\\n'.join(sys.path[1:]))"]
    own = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    front, behind = str(tmp_path / "project"), str(tmp_path / "apps")
    monkeypatch.setattr(sys, "path", [front, *own, behind])
    _, environment = prepared(["worker"])
    return environment["PYTHONPATH"].split(os.pathsep)


def test_only_what_the_project_adds_to_the_path_is_exported_before_the_users_own(
    exported: list[str], tmp_path: Path
) -> None:
    """Prevents: a task that runs a tool of another Python gives it this one's standard library."""
    assert sysconfig.get_path("stdlib") not in exported
    assert sysconfig.get_path("purelib") not in exported
    assert exported == [str(tmp_path / each) for each in ("project", "apps", "given")]


def test_the_working_directory_is_exported_by_its_name(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "config")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    _, environment = prepared(["worker"])
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
