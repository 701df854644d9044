"""Owns who takes part in the race on PostgreSQL: each with its command, or why it is missing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.peer import Peer
from benchmarks.peers import graphile_worker

_PEERS = {
    "pgqueuer": ("PgQueuer", "benchmarks.peers.pgqueuer_postgres:PgQueuerPostgres"),
    "procrastinate": (
        "Procrastinate",
        "benchmarks.peers.procrastinate_postgres:ProcrastinatePostgres",
    ),
}
PEERS = (*_PEERS, "graphile")
"""By which names they can be chosen."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A queue that takes part, as the one sees it who runs the race."""

    name: str
    settings: str = ""
    left: str = ""
    command: Callable[[str], list[str]] = lambda url: [url]
    missing: str = ""


def in_python(path: str, *, name: str = "", package: str = "") -> Entrant:
    """Return a queue of this language by `module:class`, not imported by anybody else's process."""
    module, _, attribute = path.partition(":")
    try:
        peer: type[Peer] = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        return Entrant(name=name or attribute, missing=str(error))
    return Entrant(
        name=peer.name,
        settings=f"{version(package)}, {peer.settings}" if package else peer.settings,
        left=peer.left,
        command=lambda url: [sys.executable, "-m", "benchmarks.peer", path, url],
    )


def peer(name: str) -> Entrant:
    """Return the peer of that name, installed if need be."""
    if name in _PEERS:
        shown, path = _PEERS[name]
        return in_python(path, name=shown, package=name)
    try:
        node = graphile_worker.install()
    except graphile_worker.NotToBeHad as error:
        return Entrant(name=graphile_worker.NAME, missing=str(error))
    return Entrant(
        name=graphile_worker.NAME,
        settings=graphile_worker.SETTINGS,
        left=graphile_worker.LEFT,
        command=lambda url: graphile_worker.command(node, url),
    )
