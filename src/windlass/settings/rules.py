"""Owns the rule of every setting: its parser, bounds, names and documentation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from windlass.core.payloads.codec import LARGEST
from windlass.core.values.durations import human
from windlass.core.values.ranges import Bounds
from windlass.settings import parsers as readers
from windlass.settings.parsers import Reader, Unit
from windlass.settings.url_masking import redact_url


class Rule(Struct, frozen=True):
    """How a setting is parsed, checked, shown and documented."""

    reader: Reader
    doc: str
    bounds: tuple[Any, Any] = (None, None)
    names: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()  # Variables that count where nothing else gives a value.
    unit: Unit = "seconds"  # The unit of a bare number under one of those names.
    default: str = ""
    empty: str = "never"
    secret: bool = False
    hidden: bool = False  # Shown only as set or not set.

    def read(self, raw: object, unit: Unit) -> object:
        """Read a value and check its bounds."""
        value: Any = self.reader.read(raw, unit)
        low, high = self.bounds
        least, most = (value.least, value.most) if isinstance(value, Bounds) else (value, value)
        if (low is not None and least < low) or (high is not None and most > high):
            raise ValueError("out of bounds")
        return value

    def accepts(self, unit: Unit) -> str:
        """Return a description of valid values."""
        limits = zip(("at least", "at most"), self.bounds, strict=True)
        bounds = [f"{word} {self.show(limit)}" for word, limit in limits if limit is not None]
        return ", ".join([self.reader.noun.format(unit=unit), *bounds])

    def show(self, value: object) -> str:
        """Return a value as text for people."""
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
    "url": Rule(
        readers.URL,
        "URL of the store that holds the jobs.",
        secret=True,
        fallbacks=("REDIS_URL",),
    ),
    "schema": Rule(readers.NAME, "The schema of a PostgreSQL database that holds the jobs."),
    "listen_url": Rule(
        readers.LISTEN,
        "URL for LISTEN if the store's URL leads to a pooler; off: poll only.",
        secret=True,
        empty="the URL",
    ),
    "pool_size": Rule(
        readers.NUMBER,
        "Connections to PostgreSQL that the pool keeps open; see docs/postgresql.md.",
        (1, 10_000),
    ),
    "pool_overflow": Rule(
        readers.NUMBER, "Connections that the pool may open beyond those under load.", (0, 10_000)
    ),
    "pool_recycle": Rule(
        readers.TIME, "Age at which a connection to PostgreSQL is replaced.", (_SECOND, None)
    ),
    "spaces": Rule(
        readers.SPACES,
        "Spaces of a Redis Cluster, and the queues of each; see docs/redis.md.",
        empty="none",
    ),
    "space": Rule(
        readers.SPACE,
        "The space that a worker serves, or that is looked at; default: all other queues.",
        empty="none",
    ),
    "threads": Rule(
        readers.NUMBER,
        "Threads of a worker process, for handlers that are not async.",
        (1, 10_000),
        ("WORKER_COUNT",),
        default="10, or the number of CPUs if that is more",
    ),
    "isolated_processes": Rule(
        readers.NUMBER,
        "Child processes of a worker process, for isolated handlers.",
        (1, 10_000),
        default="the number of CPUs",
    ),
    "isolate": Rule(
        readers.SWITCH, "Whether handlers that are not async run in child processes by default."
    ),
    "concurrency": Rule(
        readers.BOUNDS,
        "Jobs that a worker process runs at once; 5..100 scales with the load.",
        (1, 100_000),
        ("WORKER_CONCURRENCY",),
    ),
    "processes": Rule(readers.BOUNDS, "Worker processes; 1..8 scales with the load.", (1, 1_000)),
    "claim_size": Rule(
        readers.NUMBER,
        "Maximum number of jobs that a worker claims at once; on Redis at most 360.",
        (1, 10_000),
        ("JOB_BATCH_SIZE",),
    ),
    "poll_interval": Rule(
        readers.TIME,
        "How often an idle worker polls for jobs.",
        (_SECOND / 100, 300 * _SECOND),
        ("JOB_POLL_INTERVAL",),
        unit="milliseconds",
    ),
    "queue_size": Rule(
        readers.NUMBER,
        "Maximum number of waiting jobs in the memory store.",
        (1, 10**9),
        ("QUEUE_SIZE",),
    ),
    "max_retries": Rule(
        readers.NUMBER,
        "How often a job is retried before it is dead; a kind may set its own.",
        (0, 10**6),
        ("MAX_RETRIES", "JOB_MAX_RETRIES"),
    ),
    "max_crashes": Rule(
        readers.NUMBER,
        "How many processes a job may crash while it runs alone before it is dead.",
        (1, 10**6),
    ),
    "timeout": Rule(
        readers.TIME,
        "How long a job may run; a kind may set its own.",
        (_SECOND / 1000, None),
    ),
    "lease": Rule(
        readers.TIME,
        "Time after a worker's last heartbeat until other workers take its jobs.",
        (_SECOND, 3600 * _SECOND),
    ),
    "shutdown_timeout": Rule(
        readers.TIME,
        "How long a stopping worker waits for its running jobs.",
        names=("SHUTDOWN_TIMEOUT",),
    ),
    "wait_for_store": Rule(
        readers.TIME,
        "How long `windlass worker` waits at start for the store; 0: not at all.",
    ),
    "retention": Rule(readers.AGE, "How long completed and cancelled jobs are kept."),
    "dead_retention": Rule(readers.AGE, "How long dead jobs are kept."),
    "audit_retention": Rule(
        readers.AGE, "How long the audit log keeps what operators did; see docs/audit.md."
    ),
    "max_finished": Rule(
        readers.NUMBER,
        "How many completed and cancelled jobs Redis keeps at most, whatever their retention.",
        (0, 10**9),
    ),
    "max_payload": Rule(readers.NUMBER, "Maximum size of a payload in bytes.", (1, LARGEST)),
    "max_result": Rule(readers.NUMBER, "Maximum size of a job's result in bytes.", (1, LARGEST)),
    "max_stream": Rule(readers.NUMBER, "Maximum size of a job's stream in bytes.", (1, LARGEST)),
    "max_stream_chunks": Rule(
        readers.NUMBER, "Maximum number of chunks in a job's stream.", (1, 10**6)
    ),
    "stream_retention": Rule(
        readers.TIME, "How long a job's stream is kept after the job has ended."
    ),
    "enqueue_timeout": Rule(readers.TIME, "How long an enqueue may take.", (_SECOND / 1000, None)),
    "metrics_port": Rule(
        readers.NUMBER,
        "Port for metrics and probes, or the next free one; 0: none.",
        (0, 65_535),
        ("METRICS_PORT",),
    ),
    "metrics_host": Rule(
        readers.HOST, "Address for metrics and probes; 0.0.0.0 also serves other hosts."
    ),
    "metrics_token": Rule(
        readers.TOKEN,
        "Token, or password, for metrics: 16 to 512 visible ASCII characters; required where "
        "other hosts can reach them.",
        secret=True,
        hidden=True,
        empty="none",
    ),
    "insecure": Rule(readers.SWITCH, "Whether other hosts get metrics without a token."),
    "web_token": Rule(
        readers.TOKEN,
        "Token for the web page: 16 to 512 visible ASCII characters; required where other hosts "
        "can reach it.",
        secret=True,
        hidden=True,
        empty="none",
    ),
    "web_origins": Rule(
        readers.LIST,
        "Origins under which a proxy serves the web page, like https://jobs.example.org.",
        empty="none",
    ),
    "web_name": Rule(
        readers.LABEL,
        "Name of the environment, shown on every web page, like production.",
        empty="none",
    ),
    "log_level": Rule(readers.LEVEL, "Minimum level of log lines.", names=("LOG_LEVEL",)),
    "log_format": Rule(
        readers.FORMAT, "Format of log lines; auto: console on a terminal, else JSON."
    ),
    "traces": Rule(
        readers.TRACES,
        "OpenTelemetry spans; auto: if the program has set a provider; see docs/traces.md.",
    ),
    "queues": Rule(
        readers.QUEUES,
        "The queues that a worker serves; mail=10 uses at most 10 of its slots.",
        empty="all",
    ),
    "exclude": Rule(readers.LIST, "The queues that a worker does not serve.", empty="none"),
    "imports": Rule(readers.LIST, "Modules with handlers that a worker imports.", empty="none"),
    "encryption_keys": Rule(
        readers.KEYS,
        "Encryption keys for secrets: the first encrypts, all decrypt; see docs/secrets.md.",
        secret=True,
        empty="none",
    ),
    "redact": Rule(
        readers.PATTERNS,
        "Names of fields that are masked wherever they are shown, in addition to the built-in "
        "ones.",
        empty="none",
    ),
}
