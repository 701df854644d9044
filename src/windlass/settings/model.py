"""Owns what can be set: the fields, their types and their defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple

from windlass.core.bounds import Bounds
from windlass.settings.keys import EncryptionKey

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["auto", "console", "json"]
Traces = Literal["auto", "on", "off"]


def usable_cpus() -> int:
    """Count the CPUs that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Served(NamedTuple):
    """A queue that a worker serves, and how many of its slots that may have; None: all of them."""

    queue: str
    slots: int | None = None

    def __str__(self) -> str:
        return self.queue if self.slots is None else f"{self.queue}={self.slots}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be set. `load_settings` checks the bounds; this constructor trusts its caller."""

    url: str = field(default="sqlite:///windlass.db", repr=False)
    schema: str = "windlass"
    listen_url: str = field(default="", repr=False)
    pool_size: int = 10
    pool_overflow: int = 20
    pool_recycle: timedelta = timedelta(hours=1)
    threads: int = field(default_factory=usable_cpus)
    children: int = field(default_factory=usable_cpus)
    isolate: bool = False
    slots: Bounds = field(default=Bounds.of(100))
    processes: Bounds = field(default=Bounds.of(1))
    batch_size: int = 100
    poll_interval: timedelta = timedelta(seconds=1)
    queue_size: int = 1000
    max_retries: int = 3
    max_crashes: int = 3
    timeout: timedelta = timedelta(seconds=300)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    retention: timedelta | None = timedelta(days=7)
    dead_retention: timedelta | None = None
    max_payload: int = 262_144
    enqueue_timeout: timedelta = timedelta(seconds=10)
    metrics_port: int = 9090
    metrics_host: str = "127.0.0.1"
    metrics_token: str = field(default="", repr=False)
    insecure: bool = False
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    traces: Traces = "auto"
    queues: tuple[Served, ...] = ()
    exclude: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    encryption_keys: tuple[EncryptionKey, ...] = ()
    redact: tuple[str, ...] = ()
