"""Owns `windlass new`: writes a project, or another handler for one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windlass.cli import options
from windlass.cli.new.choices import FEATURES, Choices, StoreChoice, read_features
from windlass.cli.new.names import check_handler_name, check_package_name
from windlass.cli.new.origin import installed_from
from windlass.cli.new.templates import code_files, handler_files, project_files
from windlass.cli.new.writing import Plan, find_package, is_project, plan_into, plan_new
from windlass.cli.output import console as show

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the project's package; or: handler.")
]
HandlerName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", show_default=False, help="Name of the handler."),
]
Store = Annotated[StoreChoice, typer.Option("--store", help="Where the jobs are kept.")]
With = Annotated[
    str,
    typer.Option(
        "--with",
        metavar=",".join(FEATURES),
        show_default=False,
        help="A framework, and the web page.",
    ),
]
Into = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="A directory that exists, with a project or without; default: ./NAME."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the files.")]

_HANDLER = "handler"
EXAMPLES = (
    "windlass new shop --store postgres --with web",
    "windlass new shop.jobs --into .",
    "windlass new handler invoice",
)


def new(
    name: Name,
    handler: HandlerName = None,
    *,
    store: Store = StoreChoice.SQLITE,
    features: With = "",
    into: Into = None,
    dry_run: DryRun = False,
) -> None:
    """Write a project with an app, a handler, tests, Docker and CI.

    `windlass new handler NAME` writes another handler and its test into the project of the current
    directory. With --into, a project that has a pyproject.toml gets an app, a handler and a test.
    No file is ever overwritten.
    """
    if name == _HANDLER:
        _write_handler(handler, into or Path(), dry_run=dry_run)
        return
    with options.usage():
        if handler is not None:
            raise ValueError(f"NAME must be one word, got {name!r} and {handler!r}")
        choices = Choices(
            package=check_package_name(name),
            store=store,
            features=read_features(features),
            origin=installed_from(),
        )
        _check_into(choices, into)
    _write_project(choices, into, dry_run=dry_run)


def _check_into(choices: Choices, into: Path | None) -> None:
    is_inside = into is not None and is_project(into)
    if "." in choices.package and not is_inside:
        raise ValueError(
            f"NAME must have no dots unless --into is a directory with a pyproject.toml, got "
            f"{choices.package!r}; write {choices.package.rpartition('.')[2]}"
        )
    if choices.features and is_inside:
        raise ValueError(
            f"--with must be left out where {into} has a pyproject.toml: only code is written "
            "there; docs/asgi.md, docs/django.md and docs/web.md say what to add"
        )


def _write_project(choices: Choices, into: Path | None, *, dry_run: bool) -> None:
    if into is None:
        plan = plan_new(Path(choices.package), project_files(choices))
        steps = [f"cd {choices.package}", "make test", "make dev"]
    elif is_project(into):
        plan = plan_into(into, code_files(choices))
        steps = [
            f'add to the dependencies in pyproject.toml: "{choices.requirement}", "python-dotenv"',
            f'add to [tool.pytest.ini_options] there: windlass_app = "{choices.package}.app:app"',
            f"windlass worker {choices.package}.app:app",
        ]
    else:
        plan = plan_into(into, project_files(choices))
        steps = ["make test", "make dev"] if into == Path() else [f"cd {into}", "make test"]
    _carry_out(plan, steps, dry_run=dry_run)


def _write_handler(name: str | None, directory: Path, *, dry_run: bool) -> None:
    with options.usage():
        if name is None:
            raise ValueError("name the handler: windlass new handler NAME")
        check_handler_name(name)
    package = find_package(directory)
    is_django = (directory / "manage.py").exists()
    plan = plan_into(directory, handler_files(package, name, django=is_django))
    _carry_out(plan, ["make test"], dry_run=dry_run)


def _carry_out(plan: Plan, steps: list[str], *, dry_run: bool) -> None:
    if not dry_run:
        plan.write()
    done = "would write" if dry_run else "wrote"
    show.say(f"{done} {show.plural(len(plan.files), 'file')} to {plan.directory.resolve()}")
    for file in plan.files:
        show.say(f"  {file.path}")
    for path in plan.kept:
        show.say(f"  {path} exists, and is kept as it is")
    if not dry_run:
        show.say("next:")
        for step in steps:
            show.say(f"  {step}")
