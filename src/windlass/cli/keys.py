"""Owns `windlass keys`: the keys with which secrets are encrypted."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn

from windlass.app import Windlass
from windlass.app.rotation import Rotated, rotate_keys
from windlass.cli import options, show, target
from windlass.settings import EncryptionKey
from windlass.settings.keys import SIZE, written

keys = typer.Typer(no_args_is_help=True, help="Make and rotate the keys that encrypt secrets.")


@keys.command(epilog=options.example("windlass keys new --name k2"))
def new(
    *,
    name: Annotated[
        str, typer.Option(help="What it is called in the store; else a digest of it.")
    ] = "",
    as_json: options.AsJson = False,
) -> None:
    """Print a new key, for WINDLASS_ENCRYPTION_KEYS. It is kept nowhere else."""
    with options.usage():
        key = EncryptionKey.of(os.urandom(SIZE), name)
    text = written(key, named=bool(name))
    if as_json:
        show.document({"id": key.id, "key": text})
    else:
        show.say(text)


@keys.command(epilog=options.example("windlass keys rotate --dry-run"))
def rotate(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")] = (
        False
    ),
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Encrypt the secrets of waiting and dead jobs with the first key, whichever they have now.

    Then an old key can go from WINDLASS_ENCRYPTION_KEYS, as soon as no finished job's result needs
    it. To do it again does no harm, and does what was left.
    """
    console = show.stderr()
    with Progress(
        TextColumn("{task.completed:,} jobs looked at", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("")

        async def work(chosen: Windlass) -> Rotated:
            def advance(done: Rotated) -> None:
                progress.update(task, completed=done.looked_at)

            return await rotate_keys(chosen, dry_run=dry_run, advance=advance)

        done = target.visit(app, url, work)
    _tell(done, dry_run=dry_run, as_json=as_json)
    if done.unreadable:
        raise typer.Exit(1)


def _tell(done: Rotated, *, dry_run: bool, as_json: bool) -> None:
    left = done.outdated - done.unreadable - done.rotated
    if as_json:
        show.document({**asdict(done), "dry_run": dry_run})
    elif dry_run:
        show.say(f"the secrets of {show.plural(left, 'job')} would be encrypted again")
    else:
        show.say(f"the secrets of {show.plural(done.rotated, 'job')} were encrypted again")
        if left:
            show.note(f"{show.plural(left, 'job')} ran or changed meanwhile: do it again")
    if done.unreadable:
        told = show.plural(done.unreadable, "job")
        show.error(f"{told} cannot be decrypted with any key that is here, and stay as they are")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(keys, name="keys")
