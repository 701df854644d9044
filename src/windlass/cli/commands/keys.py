"""Owns `windlass keys`: the keys with which secrets are encrypted."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from msgspec.structs import asdict
from rich.progress import Progress, TextColumn

from windlass.app import Windlass
from windlass.app.secrets.key_rotation import Rotated, rotate_keys
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.settings import EncryptionKey
from windlass.settings.encryption_keys import SIZE, written

keys = options.Commands("Create and rotate the keys that encrypt secrets.")


@keys.command(epilog=options.example("windlass keys new --name k2"))
def new(
    *,
    name: Annotated[
        str, typer.Option(help="The key's name in the store; by default a digest of the key.")
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = (False),
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """Encrypt the secrets of waiting and dead jobs with the first key.

    Then an old key can be removed from WINDLASS_ENCRYPTION_KEYS, as soon as no finished job's
    result needs it. Running it again is safe, and completes the rest.
    """
    console = show.stderr()
    with Progress(
        TextColumn("{task.completed:,} jobs checked", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("")

        async def work(chosen: Windlass) -> Rotated:
            def advance(done: Rotated) -> None:
                progress.update(task, completed=done.looked_at)

            return await rotate_keys(chosen, dry_run=dry_run, advance=advance)

        done = target.visit(work)
    _tell(done, dry_run=dry_run, as_json=as_json)
    if done.unreadable:
        raise typer.Exit(1)


def _tell(done: Rotated, *, dry_run: bool, as_json: bool) -> None:
    left = done.outdated - done.unreadable - done.rotated
    if as_json:
        show.document({**asdict(done), "dry_run": dry_run})
    elif dry_run:
        show.say(f"the secrets of {show.plural(left, 'job')} would be re-encrypted")
    else:
        show.say(f"the secrets of {show.plural(done.rotated, 'job')} were re-encrypted")
        if left:
            show.note(
                f"{show.plural(left, 'job')} ran or changed in the meantime; repeat the command"
            )
    if done.in_steps and not as_json:
        jobs = show.plural(done.in_steps, "job")
        show.note(
            f"recorded steps of {jobs} have secrets of an older key, which are not re-encrypted; "
            "keep that key until these jobs are completed, cancelled or deleted"
        )
    if done.unreadable:
        unreadable = show.plural(done.unreadable, "job")
        show.error(
            f"{unreadable} cannot be decrypted with any configured key, and were left unchanged"
        )
