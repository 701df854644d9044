"""Owns `windlass migrate`: makes the store, and brings its schema up to date."""

from __future__ import annotations

import asyncio

import typer

from windlass.cli import options, show, target


def migrate(
    *, app: options.App = None, url: options.Url = None, as_json: options.AsJson = False
) -> None:
    """Create the store, or bring its schema up to date. Harmless when there is nothing to do."""
    store = target.choose(app, url).store
    applied = asyncio.run(store.migrate())
    if as_json:
        show.document({"store": store.location, "applied": applied})
        return
    for step in applied:
        show.say(f"applied {step}")
    if store.capabilities.durable:
        show.say(f"{store.location} is up to date")
    else:
        show.say(f"{store.location}: there is nothing to migrate")


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass migrate --url sqlite:////var/lib/shop/jobs.db"))(
        migrate
    )
