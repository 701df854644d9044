"""Owns who can take part in the race on Redis, and how each is had."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.entrants import Entrant, in_node, in_python
from benchmarks.peers import bullmq

OURS = "benchmarks.peers.windlass_redis:WindlassRedis"
TUNED = "benchmarks.peers.windlass_redis:WindlassTuned"
_ARQ = "arq==0.28.0"
"""It asks for an older redis-py than the others do."""
_PATIENCE = 300.0


def _peer(module: str, attribute: str, package: str) -> Callable[[], Entrant]:
    return partial(in_python, f"benchmarks.peers.{module}:{attribute}", package=package)


def _arq() -> Entrant:
    """Return arq with packages of its own, installed if need be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    packages = cache / "windlass-benchmarks" / _ARQ.replace("==", "-")
    if not (packages / "arq").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
        try:
            subprocess.run(
                [*command, str(packages), _ARQ], check=True, capture_output=True, timeout=_PATIENCE
            )
        except (OSError, subprocess.SubprocessError) as error:
            return Entrant(name="arq", missing=f"pip cannot install it: {error}")
    return in_python("benchmarks.peers.arq_redis:ArqRedis", packages=packages)


PEERS: dict[str, Callable[[], Entrant]] = {
    "bullmq": partial(in_node, bullmq),
    "dramatiq": _peer("dramatiq_redis", "DramatiqRedis", "dramatiq"),
    "huey": _peer("huey_redis", "HueyRedis", "huey"),
    "taskiq-streams": _peer("taskiq_redis", "TaskiqStreams", "taskiq"),
    "taskiq-lists": _peer("taskiq_redis", "TaskiqLists", "taskiq"),
    "saq": _peer("saq_redis", "SaqRedis", "saq"),
    "arq": _arq,
    "rq": _peer("rq_redis", "RqRedis", "rq"),
    "celery": _peer("celery_redis", "CeleryRedis", "celery"),
}
"""By which names they can be chosen."""

IN_NODE = bullmq.NAME
EARLY = frozenset({"Celery", "Huey", "taskiq, lists"})
"""Those who acknowledge a job before they run it, so that a crash loses it."""
