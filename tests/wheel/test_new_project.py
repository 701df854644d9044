"""Projects that the wheel's `windlass new` writes install themselves, and work.

One does so from nothing, as the Makefile has it. The others find the tools and the wheel installed,
without any extra: what a project needs besides it still has to name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.new_projects import Team, all_choices, store_address
from tests.wheel.conftest import installed, locked
from tests.wheel.environments import HERE, Wanted, copy_environment, interpreter, pip_install
from windlass.cli.new.choices import Choices

FROM_NOTHING = "shop_sqlite"
BEFORE_LANDING = {FROM_NOTHING, "shop_postgres_fastapi_web", "shop_redis_django"}
"""Every store and every framework once; tests/cli/new has every combination, not installed."""
TOOLS = ("hatchling>=1.24", "mypy>=1.15", "pytest>=8.2", "ruff>=0.11")


def _param(choices: Choices) -> Any:
    marks = [] if choices.package in BEFORE_LANDING else [pytest.mark.again]
    return pytest.param(choices, id=choices.package, marks=marks)


@pytest.fixture(scope="session")
def tools(wheel: Path) -> Path:
    """Install the wheel and the tools of a project, once for all of xdist's processes."""
    bare = installed(Wanted(HERE), wheel).bin.parent
    made, stamp = wheel.parent / "tools", wheel.parent / "tools.installed"
    with locked(made):
        if not stamp.exists():
            copy_environment(bare, made)
            pip_install(made, "pip", *TOOLS)
            stamp.touch()
    return made


@pytest.mark.timeout(1_200)  # It installs a framework, or all that a project needs.
@pytest.mark.parametrize("choices", [_param(each) for each in all_choices()])
def test_a_new_project_installs_checks_and_tests_itself_and_runs_a_job(
    choices: Choices, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = installed(Wanted(HERE), wheel)
    options = ["--store", choices.store.value]
    if choices.features:
        options += ["--with", ",".join(sorted(choices.features))]
    said = environment.run("windlass", "new", choices.package, *options, cwd=tmp_path, env={})
    assert said.returncode == 0, said.stderr
    place = tmp_path / choices.package
    if choices.package != FROM_NOTHING:
        copy_environment(request.getfixturevalue("tools"), place / ".venv")
    variables = environment.variables() | store_address(choices, request)
    team = Team(
        choices=choices,
        place=place,
        environment=variables | _pip_variables(wheel, tmp_path / "constraints.txt"),
    )
    team.check_and_serve()


def _pip_variables(wheel: Path, constraints: Path) -> dict[str, str]:
    """Return what lets pip take this wheel: on the index another project has the same name."""
    constraints.write_text(f"windlass @ {wheel.as_uri()}\n")
    kept = {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
    return {**kept, "PIP_CONSTRAINT": str(constraints), "PYTHON": str(interpreter(HERE))}
