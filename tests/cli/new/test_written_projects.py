"""Every project that `windlass new` writes is clean, complete, and runs as it was written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from mypy import api
from packaging.requirements import Requirement

from tests.support.new_projects import (
    all_choices,
    store_address,
    team_without_installing,
    written,
)
from tests.support.redis_fixtures import own_redis
from windlass.cli.new.choices import Choices, StoreChoice
from windlass.cli.new.templates import project_files
from windlass.cli.root_command import cli
from windlass.version import __version__

__all__ = ["own_redis"]

ALL = all_choices()
COMMON = {
    *(".dockerignore", ".env.example", ".github/workflows/check.yml", ".gitignore", "Dockerfile"),
    *("Makefile", "README.md", "compose.yaml", "docs/design.md", "pyproject.toml"),
    *("src/{}/__init__.py", "src/{}/__main__.py", "src/{}/accounts.py"),
    *("src/{}/handlers/__init__.py", "src/{}/handlers/mail.py"),
    *("tests/test_accounts.py", "tests/test_mail.py"),
}
TARGETS = {"dev", "test", "check", "migrate", "deploy-check"}
every_project = pytest.mark.parametrize("choices", ALL, ids=lambda choices: choices.package)


def texts(choices: Choices) -> dict[str, str]:
    return {file.path: file.text for file in project_files(choices)}


def compose(choices: Choices) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(texts(choices)["compose.yaml"])
    return loaded


def test_there_is_a_project_for_every_store_framework_and_page() -> None:
    assert len({choices.package for choices in ALL}) == len(ALL) == 3 * 3 * 2


@every_project
def test_a_project_has_all_that_a_team_keeps(choices: Choices) -> None:
    files = texts(choices)
    assert {path.format(choices.package) for path in COMMON} <= set(files)
    app = "settings.py" if "django" in choices.features else "app.py"
    assert f"src/{choices.package}/{app}" in files
    assert (f"src/{choices.package}/api.py" in files) == ("fastapi" in choices.features)


@every_project
def test_no_part_of_the_template_language_is_left(choices: Choices) -> None:
    for path, text in texts(choices).items():
        assert not re.search(r"<<\w|^\s*%%", text, re.MULTILINE), path
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
        assert "\n\n\n\n" not in text, path
        if path.endswith(".py"):
            ast.parse(text)


@every_project
def test_the_tests_of_a_project_cover_what_may_happen_to_a_job(choices: Choices) -> None:
    test = texts(choices)["tests/test_mail.py"]
    for law in ("is_sent", "is_tried_again", "is_redriven", "payload_that_does_not_fit", "a_month"):
        assert re.search(rf"def test_\w*{law}", test), law


@every_project
def test_a_project_requires_this_release_with_the_extras_that_it_uses(choices: Choices) -> None:
    project = tomllib.loads(texts(choices)["pyproject.toml"])["project"]
    (own,) = [each for each in map(Requirement, project["dependencies"]) if each.name == "windlass"]
    store = set() if choices.store is StoreChoice.SQLITE else {choices.store.value}
    assert own.extras == choices.features | store
    assert str(own.specifier) == f"=={__version__}"


@every_project
def test_a_project_requires_the_windlass_that_wrote_it_from_where_that_is_from(
    choices: Choices,
) -> None:
    """Prevents that a stranger's package is installed, which has the name on a package index."""
    origin = "file:///srv/wheels/windlass-0.1.0-py3-none-any.whl"
    project = tomllib.loads(texts(replace(choices, origin=origin))["pyproject.toml"])
    own = next(
        each
        for each in map(Requirement, project["project"]["dependencies"])
        if each.name == "windlass"
    )
    assert own.url == origin
    assert own.extras == Requirement(choices.requirement).extras
    assert project["tool"]["hatch"]["metadata"] == {"allow-direct-references": True}
    assert "metadata" not in tomllib.loads(texts(choices)["pyproject.toml"])["tool"]["hatch"]


@every_project
def test_containers_migrate_once_and_then_start_two_workers(choices: Choices) -> None:
    services = compose(choices)["services"]
    served = {"fastapi": "api", "django": "site", "web": "page"}
    server = {} if choices.store is StoreChoice.SQLITE else {choices.store.value}
    assert set(services) == {
        *("migrate", "worker"),
        *server,
        *(served[each] for each in choices.features),
    }
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in {"worker", *(served[each] for each in choices.features)}:
        before = services[name]["depends_on"]["migrate"]["condition"]
        assert before == "service_completed_successfully"
    for name in server:
        assert services[name]["healthcheck"]["test"]
        assert services["migrate"]["depends_on"][name]["condition"] == "service_healthy"


@every_project
def test_variables_of_containers_are_in_the_example_of_the_environment(choices: Choices) -> None:
    files = texts(choices)
    required = set(re.findall(r"\$\{(\w+):\?\}", files["compose.yaml"]))
    example = dict(re.findall(r"^(\w+)=(.*)$", files[".env.example"], re.MULTILINE))
    assert required <= {name for name, value in example.items() if value}


@every_project
def test_the_image_runs_the_worker_as_an_unprivileged_user(choices: Choices) -> None:
    lines = texts(choices)["Dockerfile"].splitlines()
    assert [line for line in lines if line.startswith("FROM")][-1] == "FROM python:3.13-slim"
    assert lines.index("USER app") < lines.index(f'CMD ["python", "-m", "{choices.package}"]')
    assert "STOPSIGNAL SIGTERM" in lines


@every_project
def test_the_makefile_has_the_targets_that_readme_and_workflow_name(choices: Choices) -> None:
    files = texts(choices)
    targets = set(re.findall(r"^([a-z-]+):.*##", files["Makefile"], re.MULTILINE))
    named = re.findall(r"\bmake ([a-z-]+)", files["README.md"] + str(_runs(files)))
    assert targets >= TARGETS
    assert set(named) <= targets | {"dev"}
    everything = re.search(r"--jobs (.*)$", files["Makefile"], re.MULTILINE)
    assert everything is not None
    assert set(everything[1].split()) <= targets


def _runs(files: dict[str, str]) -> list[str]:
    jobs = yaml.safe_load(files[".github/workflows/check.yml"])["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


@every_project
def test_a_deploy_is_checked_before_it_migrates(choices: Choices) -> None:
    files = texts(choices)
    runs = _runs(files)
    assert "windlass check" in files["Makefile"]
    if choices.store is not StoreChoice.SQLITE:  # Else the jobs are where no workflow can see them.
        deploy = runs[runs.index("make deploy-check") :]
        assert deploy[1] == "make migrate"
        assert "deploys mark" in deploy[-1]


def test_commands_of_windlass_in_a_project_exist() -> None:
    from typer.main import get_command

    known = set(get_command(cli).list_commands(None))  # type: ignore[attr-defined]
    for choices in ALL:
        for path in ("Makefile", "README.md", "compose.yaml", "docs/design.md"):
            named = re.findall(r"(?:bin/|`|manage\.py )windlass ([a-z]+)", texts(choices)[path])
            assert set(named) <= known, (choices.package, path)


def test_every_project_is_clean_for_ruff_whatever_the_length_of_its_name(tmp_path: Path) -> None:
    for choices in ALL:
        written(choices, tmp_path)
    for name in ("a", "a_name_that_has_30_letters_eve"):
        for store in StoreChoice:
            for framework, python in (
                ("fastapi", (3, 11)),
                ("django", (3, 11)),
                ("django", (3, 13)),
            ):
                place = tmp_path / f"{name}-{store}-{framework}-{python[1]}"
                place.mkdir()
                features = frozenset([framework])
                chosen = Choices(package=name, store=store, features=features, python=python)
                written(chosen, place)
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in (["check"], ["format", "--diff"]):
        done = subprocess.run(
            [ruff, *command, "--quiet", "--no-cache", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "framework", ["fastapi", pytest.param("django", marks=pytest.mark.long)], ids=str
)
def test_the_code_of_projects_is_clean_for_mypy_in_strict_mode(
    framework: str, tmp_path: Path
) -> None:
    """These have all of the code: redis has that of sqlite, the page none; `make check` has all."""
    stores = (StoreChoice.SQLITE, StoreChoice.POSTGRES)
    projects = [each for each in ALL if each.features == {framework} and each.store in stores]
    said, errors, code = mypy(projects, tmp_path)
    assert code == 0, said + errors


def mypy(projects: Iterable[Choices], directory: Path) -> tuple[str, str, int]:
    """Check several projects in one run, with the configuration of one of them."""
    # The directories have other names than the packages, of which tests are no part.
    places = [written(each, directory / f"in_{each.package}") for each in projects]
    config = tomllib.loads((places[0] / "pyproject.toml").read_text())["tool"]["mypy"]
    assert config["strict"]
    assert config["files"] == ["src", "tests"]
    bases = ":".join([*(str(place / "src") for place in places), str(directory)])
    arguments = ["--config-file", str(places[0] / "pyproject.toml")]
    arguments += ["--cache-dir", str(directory / "cache")]
    arguments += ["--explicit-package-bases", "--namespace-packages"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", bases)
        return api.run(
            [*arguments, *(str(place / part) for place in places for part in ("src", "tests"))]
        )


def _long(choices: Choices) -> Any:
    marks = [pytest.mark.long, *([] if "web" in choices.features else [pytest.mark.again])]
    return pytest.param(choices, id=choices.package, marks=marks)


@pytest.mark.timeout(900)  # A dozen programs, one after the other.
@pytest.mark.parametrize("choices", [_long(choices) for choices in ALL])
def test_a_project_checks_tests_and_migrates_itself_and_runs_a_job(
    choices: Choices, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = store_address(choices, request)
    team_without_installing(choices, tmp_path, address).check_and_serve()
