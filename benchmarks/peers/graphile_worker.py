"""Owns graphile-worker as a contender: which release, and its best settings.

What it does when told to is in `graphile_worker.mjs`.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.node_packages import node

NAME = "graphile-worker"
PACKAGES = ["graphile-worker@0.18.0"]
SETTINGS = (
    "0.18, Node.js 22, concurrentJobs 10, localQueue 8000 with refetchDelay 10 ms, "
    "completeJobBatchDelay 0, failJobBatchDelay 0"
)
LEFT = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)"
_OPTIONS = {
    "chunk": 5_000,
    "concurrentJobs": 10,
    "localQueue": {"size": 8_000, "refetchDelay": {"durationMs": 10}},
    "completeJobBatchDelay": 0,
    "failJobBatchDelay": 0,
}


def command(directory: Path, url: str) -> list[str]:
    """Return the command that runs it on a database."""
    program = Path(__file__).with_suffix(".mjs")
    return [str(node(directory)), str(program), str(directory), url, json.dumps(_OPTIONS)]
