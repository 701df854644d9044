"""Owns the files that settings are read from: `.env` and `windlass.toml`."""

from __future__ import annotations

from pathlib import Path

from windlass.core.errors import ConfigError


def read_dotenv(path: Path) -> dict[str, str]:
    """Read a `.env` file, if there is one.

    Raises: ConfigError: the file cannot be read.
    """
    try:
        if not path.exists():
            return {}
        # Imported here: most programs have no such file, and the import takes time.
        from dotenv import dotenv_values

        return {name: raw for name, raw in dotenv_values(path).items() if raw is not None}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def read_toml(directory: Path, chosen: str | None) -> tuple[str, dict[str, object]]:
    """Read the chosen file, or `windlass.toml` if there is one; return its name and content.

    Raises: ConfigError: the file cannot be read.
    """
    name = "windlass.toml" if chosen is None else chosen
    try:
        text = (directory / name).read_text(encoding="utf-8")
        import tomllib  # Imported here for the same reason.

        return name, tomllib.loads(text)
    except (OSError, ValueError) as error:
        if chosen is None and isinstance(error, FileNotFoundError):
            return name, {}
        source = name if chosen is None else f"WINDLASS_CONFIG = {chosen!r}"
        raise ConfigError(f"{source} cannot be read: {error}") from error
