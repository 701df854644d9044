"""Owns the options of a worker, which its app or its command-line flags set once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct, field

from windlass.core.jobs.queries import Retention
from windlass.core.jobs.streams import StreamLimits
from windlass.core.payloads.codec import MAX_RESULT
from windlass.core.payloads.redaction import Redaction
from windlass.core.values.ranges import Bounds
from windlass.observability.http_endpoint import Access
from windlass.settings import Traces


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """The options of a worker."""

    name: str = ""
    release: str = ""
    queues: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    queue_slots: Mapping[str, int] = field(default_factory=dict)
    burst: bool = False
    concurrency: Bounds = Bounds.of(100)
    threads: int = 1
    isolated_processes: int = 1
    isolate: bool = False
    claim_size: int = 1_000
    poll_interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    wait_for_store: timedelta = timedelta(0)
    retention: Retention = field(default_factory=Retention)
    audit_retention: timedelta | None = None
    """How long entries of the audit log are kept; None: for ever."""
    max_retries: int = 3
    max_crashes: int = 3
    max_result: int = MAX_RESULT
    stream_limits: StreamLimits = field(default_factory=StreamLimits)
    timeout: timedelta = timedelta(seconds=300)
    redaction: Redaction = field(default_factory=Redaction)
    traces: Traces = "off"
    metrics: Access | None = None
    """Where the worker serves its own metrics; None: nowhere, or by its supervisor."""
