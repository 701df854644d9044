"""Owns how tests load settings from the places that they may come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from windlass.settings import Resolved, load_settings


class Load:
    """Loads settings from a directory of its own, with the given flags, variables and files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(
        self,
        flags: Mapping[str, object] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        dotenv: str = "",
        toml: str = "",
    ) -> Resolved:
        if dotenv:
            (self.directory / ".env").write_text(dotenv)
        if toml:
            (self.directory / "windlass.toml").write_text(toml)
        return load_settings(flags, environ=env or {}, directory=self.directory)
