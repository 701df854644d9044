"""Owns graphile-worker as a contender: how it is had, and its best settings.

What it does when told to is in `graphile_worker.mjs`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

NAME = "graphile-worker"
SETTINGS = (
    "0.18, Node.js 22, concurrentJobs 10, localQueue 1000 with refetchDelay 10 ms, "
    "completeJobBatchDelay 0, failJobBatchDelay 0"
)
LEFT = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)"
_PACKAGES = ("graphile-worker@0.18.0", "node@22")
_OPTIONS = {
    "chunk": 5_000,
    "concurrentJobs": 10,
    "localQueue": {"size": 1_000, "refetchDelay": {"durationMs": 10}},
    "completeJobBatchDelay": 0,
    "failJobBatchDelay": 0,
}
_PATIENCE = 600.0


class NotToBeHad(Exception):
    """It cannot be installed here; says why."""


def install() -> Path:
    """Install it and its Node.js with npm, unless that was done before; return where.

    Raises:
        NotToBeHad: npm is missing, or cannot bring them.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "windlass-benchmarks" / "-".join(_PACKAGES).replace("@", "-")
    if not _works(directory):
        npm = shutil.which("npm")
        if npm is None:
            raise NotToBeHad("npm is not installed")
        directory.mkdir(parents=True, exist_ok=True)
        _run(npm, "install", "--no-audit", "--no-fund", "--prefix", str(directory), *_PACKAGES)
        if not _works(directory):
            raise NotToBeHad("npm brought it, but its Node.js does not run here")
    return directory


def command(directory: Path, url: str) -> list[str]:
    """Return the command that runs it on a database."""
    program = Path(__file__).with_suffix(".mjs")
    return [str(_node(directory)), str(program), str(directory), url, json.dumps(_OPTIONS)]


def _node(directory: Path) -> Path:
    return directory / "node_modules" / ".bin" / "node"


def _works(directory: Path) -> bool:
    if not (directory / "node_modules" / "graphile-worker").is_dir():
        return False
    try:
        return subprocess.run([_node(directory), "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


def _run(*arguments: str) -> None:
    try:
        subprocess.run(
            arguments, check=True, capture_output=True, text=True, timeout=_PATIENCE, cwd="/"
        )
    except subprocess.CalledProcessError as error:
        raise NotToBeHad(f"npm install failed: {error.stderr.strip()[-300:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotToBeHad(f"npm install took longer than {_PATIENCE:g} s") from error
