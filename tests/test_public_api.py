"""What `import windlass` gives: sorted, importable, documented, and nothing by accident."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
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


def test_importing_it_loads_nothing_that_was_not_asked_for() -> None:
    loaded = loaded_by("import windlass")
    ours = {name for name in loaded if name.startswith("windlass.")}
    assert ours == {"windlass.hangup", "windlass.lazy_names", "windlass.version"}
    assert loaded.isdisjoint({"asyncio", "logging", "msgspec", "dataclasses", "sqlite3", "ssl"})


FRAMEWORKS = {"typer", "click", "pydantic", "pytest", "hypothesis", "rich", "structlog", "psycopg"}
PARTS = {"windlass.worker", "windlass.supervisor", "windlass.web", "windlass.cli", "windlass.demo"}


def test_an_app_with_handlers_loads_no_worker_no_store_and_no_framework() -> None:
    loaded = loaded_by(
        "from windlass import Windlass\n"
        "app = Windlass('postgresql://nowhere')\n"
        "@app.job(max_retries=3)\n"
        "async def greet(name: str) -> str: ...\n"
    )
    stores = {f"windlass.store.{name}" for name in ("memory", "sqlite", "postgres", "redis")}
    operators = {"windlass.app.control.control", "windlass.app.jobs.jobs", "windlass.app.stats"}
    figures = {"windlass.observability.meters", "windlass.observability.process_stats"}
    assert loaded.isdisjoint(FRAMEWORKS | PARTS | stores | operators | figures)
    assert loaded.isdisjoint({"sqlite3", "http", "tempfile", "shutil", "importlib.resources"})


@pytest.mark.parametrize("package", ["windlass", "windlass.app"])
def test_a_name_that_is_not_there_is_refused_as_ever(package: str) -> None:
    module = import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Windless'"):
        _ = module.Windless


@pytest.mark.parametrize(
    ("words", "spared"),
    [
        (["--help"], {"asyncio", "msgspec", "windlass.app", "windlass.settings", "pydantic"}),
        (["--version"], {"asyncio", "msgspec", "windlass.app", "windlass.settings", "pydantic"}),
    ],
    ids=["help", "version"],
)
def test_a_command_loads_only_what_it_needs(words: list[str], spared: set[str]) -> None:
    loaded = loaded_by(
        f"sys.argv = ['windlass', *{words!r}]\n"
        "from windlass.cli import main\n"
        "sys.stdout, out = open('/dev/null', 'w'), sys.stdout\n"
        "try: main()\n"
        "except SystemExit: sys.stdout = out"
    )
    assert loaded.isdisjoint({*spared, "windlass.worker", "windlass.web", "textual", "psycopg"})


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("commands.worker", {"rich", "structlog", "pygments"}),
        ("commands.top", {"textual"}),
        ("processes.supervisor_process", {"typer", "pydantic", "rich", "windlass.app"}),
        ("processes.worker_process", {"typer", "pydantic", "rich"}),
    ],
    ids=["command", "top", "supervisor", "worker"],
)
def test_a_process_that_serves_loads_nothing_for_people(module: str, spared: set[str]) -> None:
    loaded = loaded_by(
        f"import windlass.cli.{module}, windlass.observability.logs\n"
        "windlass.observability.logs.configure_logging('info', 'json')"
    )
    assert loaded.isdisjoint(spared)


@pytest.mark.parametrize("command", ["doctor", "jobs", "queues", "stats"])
def test_a_command_that_looks_loads_no_worker(command: str) -> None:
    """Prevents that half of a command's time are imports of what it never runs."""
    loaded = loaded_by(f"import windlass.cli.commands.{command}")
    assert loaded.isdisjoint({"windlass.worker.worker", "windlass.worker.assembly"})
    assert loaded.isdisjoint({"rich.progress", "textual", "psycopg", "redis"})


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
