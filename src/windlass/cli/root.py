"""Owns the tree of commands, and how each of them ends: its exit code, and one line if it failed.

Exit codes: 0 done, 1 it could not be done (and one line on stderr says why), 2 wrong usage.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from windlass.cli.refusals import reason
from windlass.core.errors import WindlassError
from windlass.release import __version__

_COMMANDS = [
    "demo",
    "worker",
    "enqueue",
    "jobs",
    "why",
    "dead",
    "queues",
    "schedules",
    "flows",
    "events",
    "limits",
    "breakers",
    "stats",
    "top",
    "slo",
    "workers",
    "keys",
    "migrate",
    "doctor",
]
"""In the order in which a newcomer needs them; each is in the module of its name."""


class _Tidy(TyperGroup):
    """The group of all commands: an error of ours becomes one line and exit code 1.

    A command is loaded when it is called: a worker would wait for rich, and draws no tables.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (WindlassError, OSError) as error:
            why = reason(error)
            if ctx.obj or why is None:
                raise
            raise _refusal(why) from None

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (What Typer calls.)
        """List the commands in the order in which a newcomer needs them."""
        return _COMMANDS

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; of all of them that one is suggested which somebody may have meant."""
        for name in [cmd_name] if cmd_name in _COMMANDS else _COMMANDS:
            self._load(name)
        return super().get_command(ctx, cmd_name)

    def _load(self, name: str) -> None:
        if name not in self.commands:
            self.commands[name] = _command(name)


@cache
def _command(name: str) -> Any:
    """Make a command; once, since whoever calls in a program gets a new group for each call."""
    own = typer.Typer(rich_markup_mode=None)
    import_module(f"windlass.cli.{name}").register(own)
    return get_group(own).commands[name]


def _refusal(why: str) -> typer.Exit:
    # Imported here, because it loads rich.
    from windlass.cli import show

    show.error(why)
    return typer.Exit(1)


cli = typer.Typer(
    cls=_Tidy,
    name="windlass",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="See it run: windlass demo. Is all well here? windlass doctor",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"windlass {__version__}")
        raise typer.Exit


@cli.callback()
def windlass(
    ctx: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the release."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="WINDLASS_DEBUG", help="Show tracebacks of errors."),
    ] = False,
) -> None:
    """Background jobs on the database you already have: leased, fenced, never lost."""
    ctx.obj = debug
