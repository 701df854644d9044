"""Owns the settings: their fields, types and defaults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypedDict

from msgspec import Struct, field

from windlass.core.jobs.spaces import Space
from windlass.core.values.durations import Duration
from windlass.core.values.ranges import Bounds
from windlass.settings.encryption_keys import EncryptionKey

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["auto", "console", "json"]
Traces = Literal["auto", "on", "off"]
_MIN_THREADS = 10
_UNSHOWN = frozenset({"url", "listen_url", "metrics_token", "web_token"})


def usable_cpus() -> int:
    """Count the CPUs that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """Return how many `def` handlers run at once: most of them wait, and need no CPU.

    The measurements are in docs/decisions/0030-default-threads.md.
    """
    return max(_MIN_THREADS, usable_cpus())


class Served(NamedTuple):
    """A queue that a worker serves, and how many slots it may use; None: all of them."""

    queue: str
    slots: int | None = None

    def __str__(self) -> str:
        return self.queue if self.slots is None else f"{self.queue}={self.slots}"


class SettingArguments(TypedDict, total=False):
    """The arguments of `Windlass(...)` beside the URL, the imports and the middleware."""

    schema: str | None
    listen_url: str | None
    pool_size: int | str
    pool_overflow: int | str
    pool_recycle: Duration
    spaces: object
    space: str | None
    threads: int | str
    isolated_processes: int | str
    isolate: bool | str
    concurrency: int | str | Bounds
    processes: int | str | Bounds
    claim_size: int | str
    poll_interval: Duration
    queue_size: int | str
    max_retries: int | str
    max_crashes: int | str
    timeout: Duration
    lease: Duration
    shutdown_timeout: Duration
    wait_for_store: Duration
    retention: Duration | None
    dead_retention: Duration | None
    audit_retention: Duration | None
    max_finished: int | str
    max_payload: int | str
    max_result: int | str
    max_stream: int | str
    max_stream_chunks: int | str
    stream_retention: Duration
    enqueue_timeout: Duration
    metrics_port: int | str
    metrics_host: str | None
    metrics_token: str | None
    insecure: bool | str
    web_token: str | None
    web_origins: object
    web_name: str | None
    log_level: LogLevel
    log_format: LogFormat
    traces: Traces
    queues: object
    exclude: object
    encryption_keys: object
    redact: object


class FlagArguments(SettingArguments, total=False):
    """All settings, as a worker takes them over those of its app; None leaves one as it is."""

    url: str | None
    imports: Sequence[str]


class Settings(Struct, frozen=True, kw_only=True):
    """All settings. `load_settings` checks the bounds; this constructor trusts its caller."""

    url: str = "sqlite:///windlass.db"
    schema: str = "windlass"
    listen_url: str = ""
    pool_size: int = 10
    pool_overflow: int = 20
    pool_recycle: timedelta = timedelta(hours=1)
    spaces: tuple[Space, ...] = ()
    space: str = ""
    threads: int = field(default_factory=default_threads)
    isolated_processes: int = field(default_factory=usable_cpus)
    isolate: bool = False
    concurrency: Bounds = Bounds.of(100)
    processes: Bounds = Bounds.of(1)
    claim_size: int = 1_000
    poll_interval: timedelta = timedelta(seconds=1)
    queue_size: int = 1000
    max_retries: int = 3
    max_crashes: int = 3
    timeout: timedelta = timedelta(seconds=300)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    wait_for_store: timedelta = timedelta(minutes=1)
    retention: timedelta | None = timedelta(days=7)
    dead_retention: timedelta | None = None
    audit_retention: timedelta | None = timedelta(days=90)
    max_finished: int = 100_000
    max_payload: int = 262_144
    max_result: int = 1_048_576
    max_stream: int = 1_048_576
    max_stream_chunks: int = 10_000
    stream_retention: timedelta = timedelta(hours=1)
    enqueue_timeout: timedelta = timedelta(seconds=10)
    metrics_port: int = 19_463  # 1-WIND on a keypad; see docs/metrics.md for why.
    metrics_host: str = "127.0.0.1"
    metrics_token: str = ""
    insecure: bool = False
    web_token: str = ""
    web_origins: tuple[str, ...] = ()
    web_name: str = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    traces: Traces = "auto"
    queues: tuple[Served, ...] = ()
    exclude: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    encryption_keys: tuple[EncryptionKey, ...] = ()
    redact: tuple[str, ...] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Leave out what may contain a password."""
        shown = [name for name in self.__struct_fields__ if name not in _UNSHOWN]
        return [(name, getattr(self, name)) for name in shown]

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"
