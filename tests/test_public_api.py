"""What `import windlass` gives: sorted, importable, documented, and nothing by accident."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import windlass
from windlass.core import errors

SOURCE = Path(windlass.__file__).parents[1]


def test_the_names_are_sorted_and_there_once() -> None:
    constants_first = sorted(set(windlass.__all__), key=lambda name: (not name.isupper(), name))
    assert windlass.__all__ == constants_first
    assert dir(windlass) == sorted(windlass.__all__)


@pytest.mark.parametrize("name", windlass.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    thing = getattr(windlass, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert inspect.getdoc(thing), f"{name} has no docstring"
        assert thing.__doc__, f"{name} has no docstring of its own"


CLASSES = [name for name in windlass.__all__ if inspect.isclass(getattr(windlass, name))]


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_of_a_public_class_is_documented(name: str) -> None:
    cls = getattr(windlass, name)
    undocumented = [
        member
        for member, value in vars(cls).items()
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod))
        and not inspect.getdoc(value)
    ]
    assert undocumented == []


def test_nothing_public_is_there_by_accident() -> None:
    public = {
        name
        for name, value in vars(windlass).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public <= set(windlass.__all__)


def test_every_error_that_users_may_catch_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.WindlassError)
    }
    assert raised - set(windlass.__all__) == set()
    tree = errors.__doc__ or ""
    assert [
        name for name in raised if not re.search(rf"^(.*── )?{name}\b", tree, re.MULTILINE)
    ] == []


def test_the_package_is_typed_and_has_a_version() -> None:
    assert (SOURCE / "windlass" / "py.typed").exists()
    assert windlass.__version__.count(".") >= 2


def test_importing_it_loads_no_framework() -> None:
    loaded = loaded_by("import windlass")
    assert loaded.isdisjoint({"typer", "click", "pydantic", "pytest", "hypothesis"})
    assert loaded.isdisjoint({"rich", "structlog", "psycopg"})


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("commands.worker", {"rich", "structlog", "pygments"}),
        ("commands.top", {"textual"}),
        ("processes.worker_process", {"typer", "pydantic", "rich"}),
    ],
    ids=["supervisor", "top", "worker"],
)
def test_a_process_that_serves_loads_nothing_for_people(module: str, spared: set[str]) -> None:
    loaded = loaded_by(
        f"import windlass.cli.{module}, windlass.observability.logs\n"
        "windlass.observability.logs.configure_logging('info', 'json')"
    )
    assert loaded.isdisjoint(spared)


def loaded_by(script: str) -> set[str]:
    """Return the modules that a program has loaded at its end."""
    script = f"import sys\n{script}\nprint(' '.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(done.stdout.split())
