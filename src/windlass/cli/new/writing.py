"""Owns where `windlass new` writes, and that it never changes a file that exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from windlass.cli.new.templates import File
from windlass.core.errors import ConfigError

_PROJECT = "pyproject.toml"
_SOURCES = "src/"
_BESIDE_HANDLERS = ("app.py", "settings.py")
_MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is written to a directory, and what exists there and is kept."""

    directory: Path
    files: tuple[File, ...]
    kept: tuple[str, ...] = ()

    def write(self) -> None:
        """Write the files; one that appeared meanwhile is not overwritten.

        Raises:
            FileExistsError: there is such a file now.
        """
        for file in self.files:
            path = self.directory / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as opened:
                opened.write(file.text)


def is_project(directory: Path) -> bool:
    """Return whether a directory has a project that exists already."""
    return (directory / _PROJECT).exists()


def plan_new(directory: Path, files: Sequence[File]) -> Plan:
    """Plan a project in a directory of its own.

    Raises:
        ConfigError: the directory has something in it.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(
            f"{directory} must be a new or empty directory; choose another name, or write into it "
            f"with --into {directory}, which keeps the files that exist"
        )
    return Plan(directory=directory, files=tuple(files))


def plan_into(directory: Path, files: Sequence[File]) -> Plan:
    """Plan files in a directory that may have some; files besides code are kept as they are.

    Raises:
        ConfigError: a module or a test exists already, or the directory does not.
    """
    if not directory.is_dir():
        raise ConfigError(f"--into must be a directory that exists, got {directory}; make it first")
    placed = [_placed(file, directory) for file in files]
    present = {file.path for file in placed if (directory / file.path).exists()}
    if code := sorted(path for path in present if _is_code(path)):
        raise ConfigError(
            f"{_named(code)} must not exist in {directory}, since nothing is overwritten; choose "
            "another name, or move it away"
        )
    missing = tuple(file for file in placed if file.path not in present)
    return Plan(directory=directory, files=missing, kept=tuple(sorted(present)))


def find_package(directory: Path) -> str:
    """Return the package of a project: the one with `handlers/`, and an app or Django's settings.

    Raises:
        ConfigError: there is none, or more than one.
    """
    sources = directory / "src" if (directory / "src").is_dir() else directory
    found = sorted(
        ".".join(handlers.parent.relative_to(sources).parts)
        for pattern in ("*/handlers", "*/*/handlers")
        for handlers in sources.glob(pattern)
        if any((handlers.parent / each).exists() for each in _BESIDE_HANDLERS)
    )
    if len(found) != 1:
        what = "several: " + ", ".join(found) if found else "none"
        raise ConfigError(
            f"{directory} must have one package with handlers/ beside app.py or settings.py, got "
            f"{what}; name the directory of a project that `windlass new` wrote: --into DIR"
        )
    return found[0]


def _placed(file: File, directory: Path) -> File:
    """Return the file without `src/` where a project has its packages beside pyproject.toml."""
    package = file.path.removeprefix(_SOURCES).partition("/")[0]
    is_flat = not (directory / "src").exists() and (directory / package).is_dir()
    if is_flat and file.path.startswith(_SOURCES):
        return File(path=file.path.removeprefix(_SOURCES), text=file.text)
    return file


def _is_code(path: str) -> bool:
    return path.endswith(".py") and PurePosixPath(path).name != "__init__.py"


def _named(paths: Iterable[str]) -> str:
    listed = list(paths)
    more = len(listed) - _MAX_NAMED
    return ", ".join(listed[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
