"""Owns who can take part in a race on a server: each with its command, or why it is missing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from benchmarks.peer import Peer
from benchmarks.peers.node_packages import NotToBeHad, install


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A queue that takes part, as the one sees it who runs the race."""

    name: str
    settings: str = ""
    left: str = ""
    command: Callable[[str], list[str]] = lambda url: [url]
    missing: str = ""


def in_python(
    path: str, *, name: str = "", package: str = "", packages: Path | None = None
) -> Entrant:
    """Return a queue of this language by `module:class`, not imported by anybody else's process.

    It may have packages of its own, in a directory.
    """
    module, _, attribute = path.partition(":")
    try:
        peer: type[Peer] = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        return Entrant(name=name or attribute, missing=str(error))
    prefix = [] if packages is None else ["env", f"PYTHONPATH={packages}"]
    return Entrant(
        name=peer.name,
        settings=f"{version(package)}, {peer.settings}" if package else peer.settings,
        left=peer.left,
        command=lambda url: [*prefix, sys.executable, "-m", "benchmarks.peer", path, url],
    )


class InNode(Protocol):
    """A module that tells how a queue in JavaScript is had and run."""

    NAME: str
    PACKAGES: list[str]
    SETTINGS: str
    LEFT: str

    def command(self, directory: Path, url: str) -> list[str]:
        """Return the command that runs it on a server."""
        ...


def in_node(queue: InNode) -> Entrant:
    """Return a queue that Node.js runs, installed if need be."""
    try:
        directory = install(*queue.PACKAGES)
    except NotToBeHad as error:
        return Entrant(name=queue.NAME, missing=str(error))
    return Entrant(
        name=queue.NAME,
        settings=queue.SETTINGS,
        left=queue.LEFT,
        command=lambda url: queue.command(directory, url),
    )
