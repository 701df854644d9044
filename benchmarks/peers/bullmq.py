"""Owns BullMQ as a contender: which release, and its best settings.

What it does when told to is in `bullmq.mjs`.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.node_packages import node

NAME = "BullMQ"
PACKAGES = ["bullmq@6.7.0", "ioredis@5"]
_CONCURRENCY = 300
_CHUNK = 1_000
SETTINGS = f"6.7, Node.js 22, concurrency {_CONCURRENCY}, addBulk by {_CHUNK:,}, removeOnComplete"
LEFT = "return redis.call('LLEN', 'bull:race:wait') + redis.call('LLEN', 'bull:race:active')"


def command(directory: Path, url: str) -> list[str]:
    """Return the command that runs it on a server."""
    program = Path(__file__).with_suffix(".mjs")
    options = json.dumps({"chunk": _CHUNK, "concurrency": _CONCURRENCY})
    return [str(node(directory)), str(program), str(directory), url, options]
