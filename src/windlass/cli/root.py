"""Owns the tree of commands, and how each of them ends: its exit code, and one line if it failed.

Exit codes: 0 done, 1 it could not be done (and one line on stderr says why), 2 wrong usage.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from windlass.cli import (
    dead,
    demo,
    doctor,
    enqueue,
    jobs,
    keys,
    limits,
    migrate,
    queues,
    show,
    worker,
    workers,
)
from windlass.core.errors import WindlassError
from windlass.release import __version__

_ORDER = [
    "demo", "worker", "enqueue", "jobs", "dead", "queues", "limits", "workers", "keys", "migrate",
    "doctor",
]  # fmt: skip
_DEBUG = object()


class _Tidy(TyperGroup):
    """The group of all commands: an error of ours becomes one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            if ctx.obj is _DEBUG:
                raise
            show.error(str(error))
            raise typer.Exit(1) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            if ctx.obj is _DEBUG:
                raise
            show.error(f"{error.strerror or error}")
            raise typer.Exit(1) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order in which a newcomer needs them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


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
    ctx.obj = _DEBUG if debug else None


worker.register(cli)
enqueue.register(cli)
jobs.register(cli)
dead.register(cli)
queues.register(cli)
limits.register(cli)
workers.register(cli)
keys.register(cli)
migrate.register(cli)
doctor.register(cli)
demo.register(cli)
