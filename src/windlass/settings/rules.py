"""Owns the rule of every setting: how it is read, within which bounds, by which names, what for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windlass.core.bounds import Bounds
from windlass.core.durations import human
from windlass.settings import readers
from windlass.settings.readers import Reader, Unit
from windlass.settings.redaction import redact_url


@dataclass(frozen=True)
class Rule:
    """What makes a setting's value right, how it is shown, and what it is for."""

    reader: Reader
    doc: str
    bounds: tuple[Any, Any] = (None, None)
    names: tuple[str, ...] = ()
    unit: Unit = "seconds"  # of a bare number under one of those names
    default: str = ""
    empty: str = "never"
    secret: bool = False
    hidden: bool = False  # Nothing of it is shown, but that it is there.

    def read(self, raw: object, unit: Unit) -> object:
        """Read a value and check its bounds."""
        value: Any = self.reader.read(raw, unit)
        low, high = self.bounds
        least, most = (value.least, value.most) if isinstance(value, Bounds) else (value, value)
        if (low is not None and least < low) or (high is not None and most > high):
            raise ValueError("out of bounds")
        return value

    def accepts(self, unit: Unit) -> str:
        """Say what would be right."""
        limits = zip(("at least", "at most"), self.bounds, strict=True)
        told = [f"{word} {self.show(limit)}" for word, limit in limits if limit is not None]
        return ", ".join([self.reader.noun.format(unit=unit), *told])

    def show(self, value: object) -> str:
        """Write a value as people do."""
        if value in (None, (), ""):
            return self.empty
        if self.hidden:
            return "(hidden)"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, timedelta):
            return human(value)
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return redact_url(str(value)) if self.secret else str(value)


_SECOND = timedelta(seconds=1)

RULES: dict[str, Rule] = {
    "url": Rule(readers.URL, "Where the jobs are kept.", secret=True),
    "schema": Rule(readers.NAME, "The schema of a PostgreSQL database that holds the jobs."),
    "listen_url": Rule(
        readers.LISTEN,
        "Where a PostgreSQL server is listened to, if the URL leads to a pooler; off: poll only.",
        secret=True,
        empty="the URL",
    ),
    "pool_size": Rule(
        readers.NUMBER,
        "Connections to PostgreSQL that a pool keeps; see docs/postgresql.md.",
        (1, 10_000),
    ),
    "pool_overflow": Rule(
        readers.NUMBER, "Connections that a pool opens beyond those under load.", (0, 10_000)
    ),
    "pool_recycle": Rule(
        readers.TIME, "After how long a connection to PostgreSQL is replaced.", (_SECOND, None)
    ),
    "threads": Rule(
        readers.NUMBER,
        "Threads of a worker process, for handlers that are not async.",
        (1, 10_000),
        ("WORKER_COUNT",),
        default="the number of CPUs",
    ),
    "children": Rule(
        readers.NUMBER,
        "Child processes of a worker process, for isolated handlers.",
        (1, 10_000),
        default="the number of CPUs",
    ),
    "isolate": Rule(
        readers.SWITCH, "Whether handlers that are not async run in child processes by default."
    ),
    "slots": Rule(
        readers.BOUNDS,
        "Jobs that a worker process runs at once; 5..100: as many as the load wants.",
        (1, 100_000),
        ("WORKER_CONCURRENCY",),
    ),
    "processes": Rule(
        readers.BOUNDS, "Worker processes; 1..8: as many as the load wants.", (1, 1_000)
    ),
    "batch_size": Rule(
        readers.NUMBER,
        "Jobs that a worker claims at once, at most.",
        (1, 10_000),
        ("JOB_BATCH_SIZE",),
    ),
    "poll_interval": Rule(
        readers.TIME,
        "How often an idle worker looks for jobs that nothing woke it for.",
        (_SECOND / 100, 300 * _SECOND),
        ("JOB_POLL_INTERVAL",),
        unit="milliseconds",
    ),
    "queue_size": Rule(
        readers.NUMBER, "Jobs that may wait in the memory store.", (1, 10**9), ("QUEUE_SIZE",)
    ),
    "max_retries": Rule(
        readers.NUMBER,
        "How often a job is tried again before it is dead, unless its kind says otherwise.",
        (0, 10**6),
        ("MAX_RETRIES", "JOB_MAX_RETRIES"),
    ),
    "max_crashes": Rule(
        readers.NUMBER,
        "How many processes a job may kill, each while it runs alone, before it is dead.",
        (1, 10**6),
    ),
    "timeout": Rule(
        readers.TIME,
        "How long a job may run, unless its kind says otherwise.",
        (_SECOND / 1000, None),
    ),
    "lease": Rule(
        readers.TIME,
        "How long after a worker's last heartbeat its jobs are given to others.",
        (_SECOND, 3600 * _SECOND),
    ),
    "shutdown_timeout": Rule(
        readers.TIME,
        "How long a worker that was told to stop waits for the jobs it runs.",
        names=("SHUTDOWN_TIMEOUT",),
    ),
    "retention": Rule(readers.AGE, "How long completed and cancelled jobs are kept."),
    "dead_retention": Rule(readers.AGE, "How long dead jobs are kept."),
    "max_payload": Rule(readers.NUMBER, "Bytes that a payload may have.", (1, 2**29)),
    "enqueue_timeout": Rule(readers.TIME, "How long an enqueue may take.", (_SECOND / 1000, None)),
    "metrics_port": Rule(
        readers.NUMBER,
        "Where metrics and probes are served, or the next port that is free; 0: nowhere.",
        (0, 65_535),
        ("METRICS_PORT",),
    ),
    "metrics_host": Rule(
        readers.HOST, "The address at which they are served; 0.0.0.0: to other hosts, too."
    ),
    "metrics_token": Rule(
        readers.TOKEN,
        "The token, or password, for metrics; needed where other hosts can reach them.",
        secret=True,
        hidden=True,
        empty="none",
    ),
    "insecure": Rule(
        readers.SWITCH, "Whether metrics are served to other hosts without a token, too."
    ),
    "log_level": Rule(readers.LEVEL, "The least level that is logged.", names=("LOG_LEVEL",)),
    "log_format": Rule(
        readers.FORMAT, "How log lines look; auto: for people on a terminal, else JSON."
    ),
    "traces": Rule(
        readers.TRACES,
        "Spans for OpenTelemetry; auto: if the program has set a provider; see docs/traces.md.",
    ),
    "queues": Rule(
        readers.QUEUES,
        "The queues that a worker serves; mail=10: with at most so many of its slots.",
        empty="all",
    ),
    "exclude": Rule(readers.LIST, "The queues that a worker does not serve.", empty="none"),
    "imports": Rule(readers.LIST, "Modules with handlers, which a worker loads.", empty="none"),
    "encryption_keys": Rule(
        readers.KEYS,
        "The keys of secrets: the first encrypts, all decrypt; see docs/secrets.md.",
        secret=True,
        empty="none",
    ),
    "redact": Rule(
        readers.PATTERNS,
        "Names of fields that are masked wherever they are shown, besides the usual ones.",
        empty="none",
    ),
}
