"""Owns how a worker works: what its app, or its flags, say once and for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from windlass.core.bounds import Bounds
from windlass.core.job import Retention
from windlass.core.redaction import Redaction
from windlass.observe.endpoint import Access
from windlass.settings import Traces


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    name: str = ""
    release: str = ""
    queues: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    queue_slots: Mapping[str, int] = field(default_factory=dict)
    burst: bool = False
    slots: Bounds = field(default=Bounds.of(100))
    threads: int = 1
    children: int = 1
    isolate: bool = False
    batch_size: int = 100
    poll_interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    retention: Retention = field(default_factory=Retention)
    max_retries: int = 3
    max_crashes: int = 3
    timeout: timedelta = timedelta(seconds=300)
    redaction: Redaction = field(default_factory=Redaction)
    traces: Traces = "off"
    metrics: Access | None = None
    """Where it serves its metrics by itself; None: nowhere, or by its supervisor."""
