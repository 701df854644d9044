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

from windlass.cli.processes.garbage import without_collections
from windlass.cli.refusals import reason, refuse
from windlass.core.errors import WindlassError
from windlass.version import __version__

COMMANDS = {
    "demo": "Watch a thousand jobs run.",
    "new": "Write a project with an app, a handler, tests, Docker and CI.",
    "worker": "Serve the jobs of an app.",
    "enqueue": "Enqueue a job, and print its id.",
    "jobs": "List, show, run, retry, cancel and purge jobs.",
    "why": "Say why a job does not run, or what became of it.",
    "dead": "List, redrive and purge dead jobs.",
    "queues": "List, pause and resume queues.",
    "schedules": "List, pause, resume and run schedules.",
    "bulk": "Follow, pause, resume and stop bulk operations.",
    "flows": "List, draw and cancel flows of jobs.",
    "events": "Send events to waiting jobs, and show them.",
    "limits": "Show limits and change them live.",
    "breakers": "Show circuit breakers, open and close them.",
    "stats": "Show arrivals, departures, the slots they need, and the errors.",
    "top": "Watch queues, kinds, errors and workers live.",
    "web": "Serve the web page: what is wrong, every job, and the remedies.",
    "slo": "List kinds with a service-level target.",
    "workers": "List workers, alive and gone.",
    "audit": "List what operators did.",
    "check": "Check before a deploy that new code serves the jobs.",
    "deploys": "Mark deploys, to see which errors are new since one.",
    "keys": "Create and rotate the keys that encrypt secrets.",
    "migrate": "Create the store, or bring its schema up to date.",
    "restored": "Park, release and cancel jobs of a store restored from a backup.",
    "doctor": "Find problems, and how to fix them.",
    "chaos": "Throw faults at workers, and check that every promise is kept.",
}
"""In the order in which a newcomer needs them, with the beginning of their help.

Each is in the module of its name, which has a group of commands of that name, or one command and
its EXAMPLES. The texts are here because a list of all commands imports none of them.
"""

_DEBUG = "--debug"


class _Tidy(TyperGroup):
    """The group of all commands: an error of Windlass becomes one line and exit code 1.

    A command is imported only when it is called: a worker needs no rich and draws no tables.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (WindlassError, OSError) as error:
            why = reason(error)
            if ctx.obj or why is None:
                raise
            refuse(error, why)
            raise typer.Exit(1) from None
        except Exception as error:
            _suggest_options(error)
            _drop_prefix(error)
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # `--debug` is an option of every command and may follow its name.
        own = args[: args.index("--")] if "--" in args else args
        if _DEBUG in own:
            args = [_DEBUG, *(each for each in own if each != _DEBUG), *args[len(own) :]]
        return list(super().parse_args(ctx, args))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (What Typer calls.)
        return [*COMMANDS]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  (Likewise.)
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # An unknown name loads all commands, so that the closest one can be suggested.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            self._load(name)
        return super().get_command(ctx, cmd_name)

    def _load(self, name: str) -> None:
        if name not in self.commands:
            self.commands[name] = _command(name)


@cache
def _command(name: str) -> Any:
    # Cached: a program that calls the CLI gets a new group for each call.
    own = typer.Typer(rich_markup_mode=None)
    with without_collections(keep=False):
        module = import_module(f"windlass.cli.commands.{name}")
    found = vars(module)[name]
    if isinstance(found, typer.Typer):
        own.add_typer(found, name=name)
    else:
        options = import_module("windlass.cli.options")
        own.command(epilog=options.example(*module.EXAMPLES))(options.spread(found))
    return get_group(own).commands[name]


def _suggest_options(error: Any) -> None:
    """Let the error of an unknown option suggest those that it may mean.

    Dashes do not count: with them, `--slots` would be near to `--imports`.
    """
    if not hasattr(error, "possibilities"):
        return
    # Imported here: only a wrong usage needs it.
    from difflib import get_close_matches

    asked = error.option_name.lstrip("-")
    options = {name.lstrip("-"): name for each in error.ctx.command.params for name in each.opts}
    begins = [name for name in options if asked and name.startswith(asked)]
    error.possibilities = [options[name] for name in begins or get_close_matches(asked, options)]


def _drop_prefix(error: Any) -> None:
    """Remove what a library writes before the message about a wrong value."""
    if isinstance(message := getattr(error, "message", None), str):
        error.message = message.removeprefix("Value error, ")


cli = typer.Typer(
    cls=_Tidy,
    name="windlass",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try it: windlass demo. Check your setup: windlass doctor",
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
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            _DEBUG,
            envvar="WINDLASS_DEBUG",
            help="Show full tracebacks. Also works after the command.",
        ),
    ] = False,
) -> None:
    """Background jobs in the database that you already have."""
    ctx.obj = debug
