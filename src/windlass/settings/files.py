"""Owns the files that settings are read from: `.env` and `windlass.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from dotenv import dotenv_values

from windlass.core.errors import ConfigError


def read_dotenv(path: Path) -> dict[str, str]:
    """Read a `.env` file, if there is one.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return {name: raw for name, raw in dotenv_values(path).items() if raw is not None}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def read_toml(directory: Path, chosen: str | None) -> tuple[str, dict[str, object]]:
    """Read the chosen file, or `windlass.toml` if there is one, and say which it was.

    Raises:
        ConfigError: it cannot be read.
    """
    name = "windlass.toml" if chosen is None else chosen
    try:
        return name, tomllib.loads((directory / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if chosen is None and isinstance(error, FileNotFoundError):
            return name, {}
        told = name if chosen is None else f"WINDLASS_CONFIG = {chosen!r}"
        raise ConfigError(f"{told} cannot be read: {error}") from error
