"""Runs a quick part of the tests on the other versions of Python that this machine has.

Each has an environment of its own, `.venv-3.13` for example, which is kept for the next time. The
tests of Django run there once more for each release of Django that the environment has not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.wheel.environments import HERE, ROOT, claimed, interpreter, requirements_of

PART = [
    *(
        "tests/handlers/provided",
        "tests/settings",
        "tests/test_public_api.py",
        "tests/cli/processes/test_worker.py",
    ),
    *(
        "tests/worker/engine/test_outcomes.py",
        "tests/worker/engine/test_timeouts.py",
        "tests/worker/test_shutdown.py",
    ),
]
"""What depends most on the version: tasks and their cancellation, annotations, processes."""
DJANGO = "tests/contrib/django"
DJANGO_PROJECT = f"{DJANGO}/test_project.py"
"""A whole project with its processes, which takes longer than the rest: once, on the newest."""
DJANGO_RELEASES = ("6.0", "6.1")
"""The releases with a tasks framework of their own; 5.2 is tried with this project's own Python."""
_TOOLS = {"deptry", "import-linter", "mypy", "ruff", "vulture"}
"""What developers need besides, and no test of these: to install it takes as long as the rest."""
_TESTERS = 2 * (os.cpu_count() or 1)
"""As in the Makefile: tests with real processes wait most of the time."""


def main() -> None:
    """Run them, and end with 0 and a line about each version left out, or with 1.

    The arguments of the command line are passed on to pytest.

    They end with the first run that fails: a later one in which the same tests pass would make
    pytest forget which have failed, and `--last-failed` would find none.
    """
    for version in claimed():
        if version != HERE and not _passes(version):
            sys.exit(f"tests failed on Python {version}")


def _passes(version: str) -> bool:
    if (python := interpreter(version)) is None:
        print(f"skipped: there is no Python {version} here, on the path or among pyenv's")
        return True
    print(f"Python {version}", flush=True)
    own = _environment(version, python)
    is_newest = version == claimed()[-1]
    return _run(own, PART, {}) and all(
        _passes_on_django(own, release, whole=is_newest and release == DJANGO_RELEASES[-1])
        for release in DJANGO_RELEASES
    )


def _passes_on_django(own: Path, release: str, *, whole: bool) -> bool:
    """Run the tests of Django on one of its releases, which is put before that of the environment.

    A release that pip does not find for this Python is left out, and named.
    """
    there = own.parents[1] / f"django-{release}"
    if not there.exists():
        pip = [str(own), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        wanted = ["--no-deps", "--target", str(there), f"django~={release}.0"]
        if subprocess.call([*pip, *wanted]) != 0:
            print(f"skipped: pip finds no Django {release} for {own}")
            return True
    print(f"Django {release}", flush=True)
    tests = [DJANGO] if whole else [DJANGO, f"--ignore={DJANGO_PROJECT}"]
    return _run(own, tests, {"PYTHONPATH": str(there)})


def _run(own: Path, tests: list[str], environment: dict[str, str]) -> bool:
    pytest = [str(own), "-m", "pytest", "-m", "not long", "--dist=worksteal"]
    pytest += [f"--numprocesses={_TESTERS}", "--durations=10"]
    return (
        subprocess.call([*pytest, *sys.argv[1:], *tests], cwd=ROOT, env=os.environ | environment)
        == 0
    )


def _environment(version: str, python: str) -> Path:
    """Return the Python of the environment, with what tests need installed in it."""
    directory = ROOT / f".venv-{version}"
    stamp, project = directory / ".dev", ROOT / "pyproject.toml"
    own = directory / "bin/python"
    if not stamp.exists() or stamp.stat().st_mtime < project.stat().st_mtime:
        subprocess.check_call([python, "-m", "venv", str(directory)])
        pip = [str(own), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.check_call([*pip, "install", "--editable", *_needed()])
        stamp.touch()
    return own


def _needed() -> list[str]:
    """Return what is to be installed: these sources with their extras, and what tests import."""
    own, *others = requirements_of("dev")
    extras = own.removeprefix("windlass")
    return [f"{ROOT}{extras}", *(each for each in others if _name(each) not in _TOOLS)]


def _name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0]


if __name__ == "__main__":
    main()
