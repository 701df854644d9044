"""Owns `windlass keys`: the keys with which secrets are encrypted."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from windlass.cli import options, show
from windlass.settings import EncryptionKey
from windlass.settings.keys import SIZE, written

keys = typer.Typer(no_args_is_help=True, help="Make keys for the encryption of secrets.")


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


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(keys, name="keys")
