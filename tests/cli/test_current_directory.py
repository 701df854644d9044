"""An app is found in the current directory, whose files take the place of nothing else."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

WINDLASS = Path(sys.executable).with_name("windlass")
USED = ["cronsim", "dotenv", "msgspec", "psycopg", "rich", "structlog", "typer"]
INTRUDER = """
import os
open(os.path.join(os.path.dirname(__file__), "intruded"), "a").write(__name__ + " ")
raise ImportError("a file of the current directory was imported: " + __name__)
"""
APP = """
from windlass import Windlass

import helper

app = Windlass()


@app.job(queue="mail")
async def near() -> str:
    import late

    return helper.NAME + late.NAME


@app.job(queue="mail", isolate=True)
def far() -> str:
    import late

    return helper.NAME + late.NAME
"""


def intrude(shell: Shell) -> None:
    """Put a file into the directory for each module that this Python has and we could import."""
    for name in {*sys.stdlib_module_names, *USED}:
        if name != "__main__" and find_spec(name) is not None:
            shell.write(f"{name}.py", INTRUDER)


def test_files_of_the_current_directory_shadow_neither_the_standard_library_nor_packages(
    shell: Shell, start: Start
) -> None:
    shell.write("depot.py", APP)
    shell.write("helper.py", "NAME = 'help'")
    shell.write("late.py", "NAME = 'late'")
    intrude(shell)
    shell.write(".env", "LOG_LEVEL=debug\n")
    shell.write("windlass.toml", "concurrency = 2\n")
    for kind in ("near", "far"):
        enqueued = start(str(WINDLASS), "enqueue", kind, "{}", "--app", "depot:app")
        said = shell.ended(enqueued)
        assert said.code == 0, said.err
    said = shell.ended(start(str(WINDLASS), "worker", "depot:app", "--burst"))
    assert said.code == 0, said.err
    listed = shell.ended(start(str(WINDLASS), "jobs", "list", "--json")).json["jobs"]
    assert {job["kind"]: job["state"] for job in listed} == {
        "near": "completed",
        "far": "completed",
    }, said.err
    assert not (shell.directory / "intruded").exists()


def test_a_module_that_an_installed_one_hides_is_reported(
    shell: Shell, start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Prevents: the installed release of an app runs, and its checkout is edited without effect."""
    installed = tmp_path_factory.mktemp("installed")
    (installed / "depot.py").write_text("from windlass import Windlass\napp = Windlass()\n")
    shell.write("depot.py", "from windlass import Windlass\napp = Windlass()\n")
    hidden = shell.ended(
        start(str(WINDLASS), "migrate", "--app", "depot:app", PYTHONPATH=str(installed))
    )
    assert hidden.code == 0, hidden.err
    assert f"'depot' is {installed / 'depot.py'}, not {shell.directory / 'depot.py'}" in hidden.err
    preferred = start(str(WINDLASS), "migrate", "--app", "depot:app", PYTHONPATH=".")
    assert shell.ended(preferred).err == ""
    usual = start(str(WINDLASS), "migrate", "--app", "depot:app")
    assert shell.ended(usual).err == ""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import sys\nsys.exit(3)", "it called sys.exit(3)"),
        ("import sys\nsys.exit('no database')", "it called sys.exit('no database')"),
        ("raise SystemExit", "it called sys.exit()"),
    ],
)
def test_an_app_that_calls_sys_exit_when_imported_is_reported(
    shell: Shell, start: Start, source: str, told: str
) -> None:
    shell.write("depot.py", source)
    looked = shell("jobs", "list", "--app", "depot:app")
    said = shell.ended(start(str(WINDLASS), "worker", "depot:app"))
    for each in (looked, said):
        assert each.code == 1
        assert f"error: importing 'depot' failed: {told}" in each.err
        assert f'/depot.py", line {1 + source.count(chr(10))}' in each.err
        assert "Traceback" not in each.err


def test_a_module_of_imports_that_calls_sys_exit_is_reported(shop: Shell, start: Start) -> None:
    shop.write("leaver.py", "import sys\nsys.exit(3)")
    said = shop.ended(start(str(WINDLASS), "worker", "shop:app", "--imports=leaver"))
    assert said.code == 1
    assert "error: importing 'leaver' failed: it called sys.exit(3)" in said.err
    assert '/leaver.py", line 2' in said.err
