"""Owns how a text is edited in the editor that a person has chosen, and why that may fail."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from windlass.core.errors import ConfigError

_VARIABLES = ("VISUAL", "EDITOR")
_USUAL = ("sensible-editor", "editor", "nano", "vim", "vi")


def edit(text: str, *, suffix: str, otherwise: str) -> str:
    """Return a text after a person has edited it.

    `otherwise` is an alternative for the message of an error.

    Raises:
        ConfigError: there is no editor, it cannot be run, or it failed.
    """
    named, command = _chosen(otherwise)
    remedy = f"set EDITOR to an editor that is installed, or {otherwise}"
    # Only its owner can read a file in such a directory: a payload may hold secrets.
    with tempfile.TemporaryDirectory(prefix="windlass-") as directory:
        file = Path(directory, f"edit{suffix}")
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.call([*command, str(file)])  # noqa: S603 - a person's own editor.
        except OSError as error:
            raise ConfigError(f"{named} cannot be run: {error.strerror}; {remedy}") from error
        if code:
            raise ConfigError(f"{named} failed with exit code {code}; {remedy}")
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"the file that {named} saved cannot be read: {error}; {remedy}"
            ) from error


def _chosen(otherwise: str) -> tuple[str, list[str]]:
    for variable in _VARIABLES:
        if value := os.environ.get(variable):
            try:
                command = shlex.split(value)
            except ValueError as error:
                raise ConfigError(
                    f"{variable} must be a command, got {value!r} ({error}); correct it, or "
                    f"{otherwise}"
                ) from None
            if command:
                return f"the editor {variable}={value}", command
    for name in _USUAL:
        if found := shutil.which(name):
            return f"the editor {name}", [found]
    raise ConfigError(f"no editor is installed; set EDITOR to one, or {otherwise}")
