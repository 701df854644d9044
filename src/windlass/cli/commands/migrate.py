"""Owns `windlass migrate`: makes the store, and brings its schema up to date."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.store.sql_files import Migration

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the SQL that would run, without running it.")
]
SchemaName = Annotated[
    str | None, typer.Option("--schema", help="The schema of a PostgreSQL database to use.")
]

EXAMPLES = ("windlass migrate --url postgresql://db/shop --dry-run",)


def migrate(
    *,
    target: options.Target,
    schema: SchemaName = None,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Create the store, or bring its schema up to date. Harmless when there is nothing to do."""
    chosen = target.choose()
    chosen.configure(schema=schema)
    if dry_run:
        _show_steps(asyncio.run(_steps(chosen)), as_json=as_json)
        return
    store = chosen.store
    applied = asyncio.run(_migrate(chosen))
    if as_json:
        show.document({"store": store.location, "applied": applied})
        return
    for step in applied:
        show.say(f"applied {step}")
    if store.capabilities.durable:
        show.say(f"{store.location} is up to date")
    else:
        show.say(f"{store.location}: nothing to migrate")


async def _migrate(app: Windlass) -> list[str]:
    try:
        return await app.store.migrate()
    finally:
        await app.aclose()


async def _steps(app: Windlass) -> list[Migration]:
    try:
        return await app.store.migrations()
    finally:
        await app.aclose()


def _show_steps(steps: list[Migration], *, as_json: bool) -> None:
    if as_json:
        named = [{"name": f"{step.number:04}_{step.name}", "sql": step.sql} for step in steps]
        show.document({"steps": named})
        return
    for step in steps:
        # Not by `show.say`, which wraps lines: psql may read this.
        typer.echo(f"-- {step.number:04}_{step.name}\n{step.sql}")
    if not steps:
        typer.echo("-- nothing to migrate")
