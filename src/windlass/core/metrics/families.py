"""Owns the list of all metrics; nothing else is exposed."""

from __future__ import annotations

from types import MappingProxyType

from windlass.core.metrics.exposition import Family
from windlass.core.metrics.histogram import SHOWN

_JOB = ("queue", "kind")
_PROCESS = ("process",)
_CALLS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)

EVENTS = (
    "claimed", "completed", "failed", "retried", "snoozed", "parked", "released", "crashed",
    "suspected", "rescued", "dead", "cancelled", "fenced",
)  # fmt: skip
"""The events of a job in a worker, each with a counter `windlass_jobs_..._total`."""
_EVENT_DOCS = {
    "claimed": "Jobs claimed.",
    "completed": "Jobs completed.",
    "failed": "Failed runs, whether or not they are retried.",
    "retried": "Retries scheduled after a failed run.",
    "snoozed": "Jobs snoozed, by their handler or because no room was free.",
    "parked": "Jobs parked until an event, without a slot.",
    "released": "Jobs released without being charged an attempt.",
    "crashed": "Jobs whose process died while they ran.",
    "suspected": "Jobs that run alone next, because a process died while they ran.",
    "rescued": "Jobs rescued from a worker that lost its lease.",
    "dead": "Jobs that became dead letters.",
    "cancelled": "Jobs cancelled or expired.",
    "fenced": "Writes rejected because the lease was lost.",
}

OF_RUNS = (
    *(
        Family(f"windlass_jobs_{event}_total", "counter", _EVENT_DOCS[event], _JOB)
        for event in EVENTS
    ),
    Family("windlass_job_duration_seconds", "histogram", "Duration of runs.", _JOB, bounds=SHOWN),
    Family(
        "windlass_job_wait_seconds",
        "histogram",
        "Time from due to claimed.",
        _JOB,
        bounds=SHOWN,
    ),
    Family(
        "windlass_store_call_seconds",
        "histogram",
        "Duration of calls to the store.",
        ("call",),
        bounds=_CALLS,
    ),
    Family(
        "windlass_kind_starts_total",
        "counter",
        "First starts of jobs whose kind has a target.",
        ("kind",),
    ),
    Family(
        "windlass_kind_late_starts_total",
        "counter",
        "First starts that missed their kind's target.",
        ("kind",),
    ),
    Family("windlass_store_errors_total", "counter", "Failed calls to the store.", ("call",)),
    Family("windlass_batch_jobs", "histogram", "Jobs per call to the store.", ("call",), _SIZES),
)
"""Counters of workers; a supervisor adds up those of all its processes."""

OF_PROCESSES = (
    Family("windlass_up", "gauge", "Whether the worker process is serving.", _PROCESS),
    Family("windlass_jobs_in_flight", "gauge", "Running jobs.", _PROCESS),
    Family("windlass_slots", "gauge", "Jobs that can run at the same time.", _PROCESS),
    Family("windlass_threads", "gauge", "Threads for handlers that are not async.", _PROCESS),
    Family("windlass_threads_in_use", "gauge", "Threads that are running a handler.", _PROCESS),
    Family(
        "windlass_isolated_processes", "gauge", "Child processes for isolated handlers.", _PROCESS
    ),
    Family(
        "windlass_isolated_processes_in_use",
        "gauge",
        "Child processes that are running a job.",
        _PROCESS,
    ),
    Family(
        "windlass_loop_lag_seconds",
        "gauge",
        "Seconds since the event loop last made progress.",
        _PROCESS,
    ),
    Family(
        "windlass_loop_late_seconds_total",
        "counter",
        "Total time that the event loop was blocked.",
        _PROCESS,
    ),
    Family(
        "windlass_heartbeat_age_seconds",
        "gauge",
        "Time since the lease was last renewed.",
        _PROCESS,
    ),
    Family("windlass_lease_seconds", "gauge", "Duration of the lease after a renewal.", _PROCESS),
    Family(
        "windlass_store_contact_age_seconds",
        "gauge",
        "Time since the store last answered a claim or a control poll.",
        _PROCESS,
    ),
    Family(
        "windlass_listening",
        "gauge",
        "Whether wake-up notifications arrive; absent where they are disabled.",
        _PROCESS,
    ),
    Family("windlass_pool_connections", "gauge", "Open connections of the store's pool.", _PROCESS),
    Family("windlass_pool_connections_in_use", "gauge", "Pool connections in use.", _PROCESS),
    Family(
        "windlass_pool_connections_limit", "gauge", "Maximum number of pool connections.", _PROCESS
    ),
    Family("windlass_cpu_seconds_total", "counter", "CPU time used by the process.", _PROCESS),
    Family("windlass_memory_bytes", "gauge", "Resident memory of the process.", _PROCESS),
    Family(
        "windlass_memory_limit_bytes",
        "gauge",
        "Memory limit of the container, or memory of the host.",
        _PROCESS,
    ),
)
"""Metrics of each process."""

OF_SUPERVISOR = (
    Family("windlass_processes", "gauge", "Worker processes that should be running."),
    Family(
        "windlass_process_deaths_total",
        "counter",
        "Unexpected exits of worker processes.",
    ),
    Family(
        "windlass_crash_looping",
        "gauge",
        "Whether worker processes die soon after they start work.",
    ),
    Family(
        "windlass_start_time_seconds",
        "gauge",
        "Unix time at which the counters of this endpoint started.",
    ),
)
"""Metrics of a supervisor; a worker without one exposes when it began to count."""

_QUEUE = ("queue",)
_KIND = ("kind",)
OF_CLUSTER = (
    Family("windlass_queue_jobs", "gauge", "Jobs in a queue, by state.", ("queue", "state")),
    Family(
        "windlass_queue_jobs_capped",
        "gauge",
        "Whether windlass_queue_jobs is a lower bound, because counting stopped there.",
        ("queue", "state"),
    ),
    Family(
        "windlass_queue_oldest_pending_seconds",
        "gauge",
        "Time since the oldest pending job of a queue was due, without paused kinds and keys.",
        _QUEUE,
    ),
    Family("windlass_queue_workers", "gauge", "Live workers that serve a queue.", _QUEUE),
    Family(
        "windlass_queue_unserved_lanes",
        "gauge",
        "Lanes with pending jobs that no live worker would run, without paused kinds and keys.",
        _QUEUE,
    ),
    Family("windlass_queue_paused", "gauge", "Whether a queue is paused.", _QUEUE),
    Family(
        "windlass_queue_arrival_rate", "gauge", "Jobs that arrive in a queue, per second.", _QUEUE
    ),
    Family(
        "windlass_queue_service_rate", "gauge", "Jobs of a queue that finish, per second.", _QUEUE
    ),
    Family(
        "windlass_kind_oldest_pending_seconds",
        "gauge",
        "Time since the oldest pending job of a kind was due.",
        _KIND,
    ),
    Family(
        "windlass_kind_target_seconds", "gauge", "Target for the time from due to start.", _KIND
    ),
    Family(
        "windlass_kind_paused",
        "gauge",
        "Whether a kind is paused, or every queue in which its jobs wait.",
        _KIND,
    ),
    Family(
        "windlass_kind_duration_seconds",
        "gauge",
        "Percentiles of run durations over the last hour.",
        ("kind", "percentile"),
    ),
    Family(
        "windlass_kind_wait_seconds",
        "gauge",
        "Percentiles of waiting times over the last hour.",
        ("kind", "percentile"),
    ),
    Family(
        "windlass_kind_short",
        "gauge",
        "1 for a kind whose jobs wait because all threads or child processes for it are in use.",
        ("kind", "pool"),
    ),
    Family(
        "windlass_breaker_state",
        "gauge",
        "State of a circuit breaker: 0 closed, 1 half-open, 2 open.",
        ("breaker",),
    ),
    Family(
        "windlass_breaker_pinned",
        "gauge",
        "Whether a circuit breaker is pinned open or closed by hand.",
        ("breaker",),
    ),
    Family("windlass_limit_in_use", "gauge", "Tokens of a limit that workers hold.", ("limit",)),
    Family("windlass_workers", "gauge", "Workers with a lease, by state.", ("state",)),
    Family(
        "windlass_schedule_lag_seconds",
        "gauge",
        "Delay of the most overdue schedule tick.",
    ),
    Family(
        "windlass_snapshot_age_seconds",
        "gauge",
        "Age of the oldest snapshot of the database that is held open.",
    ),
    Family(
        "windlass_store_disk_free_bytes",
        "gauge",
        "Free space where the store's file is; absent where the store is a server.",
    ),
    Family("windlass_store_disk_bytes", "gauge", "Total space where the store's file is."),
    Family(
        "windlass_store_findings",
        "gauge",
        "Problems of the store that endanger jobs, by the names that windlass doctor --json shows.",
        ("finding",),
    ),
    Family("windlass_sample_age_seconds", "gauge", "Age of the cluster-wide figures."),
    Family(
        "windlass_sample_duration_seconds",
        "gauge",
        "Time that the store took to compute the cluster-wide figures.",
    ),
)
"""Metrics of all workers together: sampled by one of them, and the same at every endpoint."""

FAMILIES = MappingProxyType(
    {each.name: each for each in (*OF_RUNS, *OF_PROCESSES, *OF_SUPERVISOR, *OF_CLUSTER)}
)
