"""Owns how contenders in JavaScript are had: by npm, with a Node.js, in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_NODE = "node@22"
_PATIENCE = 600.0


class NotToBeHad(Exception):
    """It cannot be installed here; says why."""


def install(*packages: str) -> Path:
    """Install packages and a Node.js with npm, unless that was done before; return where.

    Raises:
        NotToBeHad: npm is missing, or cannot bring them.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    packages = (*packages, _NODE)
    directory = cache / "windlass-benchmarks" / "-".join(packages).replace("@", "-")
    if not _works(directory, packages):
        npm = shutil.which("npm")
        if npm is None:
            raise NotToBeHad("npm is not installed")
        directory.mkdir(parents=True, exist_ok=True)
        _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(directory), *packages])
        if not _works(directory, packages):
            raise NotToBeHad("npm brought it, but its Node.js does not run here")
    return directory


def node(directory: Path) -> Path:
    """Return the Node.js that was installed there."""
    return directory / "node_modules" / ".bin" / "node"


def _works(directory: Path, packages: Sequence[str]) -> bool:
    names = [package.partition("@")[0] for package in packages]
    if not all((directory / "node_modules" / name).is_dir() for name in names):
        return False
    try:
        return subprocess.run([node(directory), "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


def _run(arguments: Sequence[str]) -> None:
    try:
        subprocess.run(
            arguments, check=True, capture_output=True, text=True, timeout=_PATIENCE, cwd="/"
        )
    except subprocess.CalledProcessError as error:
        raise NotToBeHad(f"npm install failed: {error.stderr.strip()[-300:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotToBeHad(f"npm install took longer than {_PATIENCE:g} s") from error
