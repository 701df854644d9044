"""Owns the list of all metrics. Whoever counts refers to these; nothing else is exposed."""

from __future__ import annotations

from types import MappingProxyType

from windlass.core.latency import SHOWN
from windlass.core.metrics import Family

_JOB = ("queue", "kind")
_PROCESS = ("process",)
_CALLS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)

EVENTS = (
    "claimed", "completed", "failed", "retried", "snoozed", "parked", "released", "crashed",
    "suspected", "rescued", "dead", "cancelled", "fenced",
)  # fmt: skip
"""What can happen to a job in a worker, each with a counter `windlass_jobs_..._total`."""
_EVENT_DOCS = {
    "claimed": "Jobs that were claimed.",
    "completed": "Jobs that were completed.",
    "failed": "Runs that failed, whether they are tried again or not.",
    "retried": "Jobs that failed and were scheduled to be tried again.",
    "snoozed": "Jobs that were put off, by themselves or for want of room.",
    "parked": "Jobs that wait for an event since then, without a slot.",
    "released": "Jobs that were given back, and charged nothing.",
    "crashed": "Jobs whose process died under them.",
    "suspected": "Jobs that run alone next, since a process died while they ran.",
    "rescued": "Jobs that were taken over from a worker that had lost its lease.",
    "dead": "Jobs that failed for good.",
    "cancelled": "Jobs that were cancelled, or had expired.",
    "fenced": "Words about a job that came too late, and changed nothing.",
}

OF_RUNS = (
    *(
        Family(f"windlass_jobs_{event}_total", "counter", _EVENT_DOCS[event], _JOB)
        for event in EVENTS
    ),
    Family("windlass_job_duration_seconds", "histogram", "How long runs took.", _JOB, bounds=SHOWN),
    Family(
        "windlass_job_wait_seconds",
        "histogram",
        "How long jobs waited after they were due, until they were claimed.",
        _JOB,
        bounds=SHOWN,
    ),
    Family(
        "windlass_store_call_seconds",
        "histogram",
        "How long the store took to answer.",
        ("call",),
        bounds=_CALLS,
    ),
    Family("windlass_store_errors_total", "counter", "Calls that the store failed.", ("call",)),
    Family(
        "windlass_batch_jobs", "histogram", "How many jobs went in one call.", ("call",), _SIZES
    ),
)
"""What workers count; the counts of all processes of a supervisor are added up."""

OF_PROCESSES = (
    Family("windlass_up", "gauge", "Whether the worker process serves.", _PROCESS),
    Family("windlass_jobs_in_flight", "gauge", "Jobs that run.", _PROCESS),
    Family("windlass_slots", "gauge", "Jobs that can run at once.", _PROCESS),
    Family("windlass_threads", "gauge", "Threads for handlers that are not async.", _PROCESS),
    Family("windlass_threads_in_use", "gauge", "Threads that run a handler.", _PROCESS),
    Family("windlass_children", "gauge", "Child processes for isolated handlers.", _PROCESS),
    Family("windlass_children_in_use", "gauge", "Child processes that run a job.", _PROCESS),
    Family(
        "windlass_loop_lag_seconds", "gauge", "For how long the event loop stands still.", _PROCESS
    ),
    Family(
        "windlass_loop_late_seconds_total",
        "counter",
        "For how long the event loop has stood still in all.",
        _PROCESS,
    ),
    Family(
        "windlass_heartbeat_age_seconds", "gauge", "Since when the lease was renewed.", _PROCESS
    ),
    Family("windlass_lease_seconds", "gauge", "For how long a renewal is good.", _PROCESS),
    Family(
        "windlass_store_contact_age_seconds",
        "gauge",
        "Since when the store answered a claim, or was asked for orders.",
        _PROCESS,
    ),
    Family(
        "windlass_listening",
        "gauge",
        "Whether wake-ups arrive; absent where they are switched off.",
        _PROCESS,
    ),
    Family("windlass_pool_connections", "gauge", "Connections of the store's pool.", _PROCESS),
    Family("windlass_pool_connections_in_use", "gauge", "Connections that are lent out.", _PROCESS),
    Family(
        "windlass_pool_connections_limit", "gauge", "Connections that the pool may open.", _PROCESS
    ),
    Family("windlass_cpu_seconds_total", "counter", "CPU time of the process.", _PROCESS),
    Family("windlass_memory_bytes", "gauge", "Resident memory of the process.", _PROCESS),
)
"""What is told of each process apart."""

OF_SUPERVISOR = (
    Family("windlass_processes", "gauge", "Worker processes that are to run."),
    Family(
        "windlass_process_deaths_total",
        "counter",
        "Worker processes that ended without having been told to.",
    ),
    Family("windlass_crash_looping", "gauge", "Whether worker processes die as soon as they work."),
    Family(
        "windlass_start_time_seconds",
        "gauge",
        "Since when whoever serves these has counted, in Unix time.",
    ),
)
"""What is told of a supervisor; a worker without one tells since when it has counted."""

_QUEUE = ("queue",)
_KIND = ("kind",)
OF_CLUSTER = (
    Family("windlass_queue_jobs", "gauge", "Jobs in a queue, by state.", ("queue", "state")),
    Family(
        "windlass_queue_jobs_capped",
        "gauge",
        "Whether there are more than windlass_queue_jobs says, since counting ended there.",
        ("queue", "state"),
    ),
    Family(
        "windlass_queue_oldest_pending_seconds",
        "gauge",
        "For how long the oldest pending job of a queue has been due, paused kinds and keys aside.",
        _QUEUE,
    ),
    Family("windlass_queue_workers", "gauge", "Live workers that serve a queue.", _QUEUE),
    Family(
        "windlass_queue_unserved_lanes",
        "gauge",
        "Lanes with pending jobs that no live worker would run, paused kinds and keys aside.",
        _QUEUE,
    ),
    Family("windlass_queue_paused", "gauge", "Whether a queue is paused.", _QUEUE),
    Family(
        "windlass_queue_arrival_rate", "gauge", "Jobs that came into a queue, a second.", _QUEUE
    ),
    Family(
        "windlass_queue_service_rate", "gauge", "Jobs that left a queue for good, a second.", _QUEUE
    ),
    Family(
        "windlass_kind_oldest_pending_seconds",
        "gauge",
        "For how long the oldest pending job of a kind has been due.",
        _KIND,
    ),
    Family("windlass_kind_target_seconds", "gauge", "Within which time jobs shall start.", _KIND),
    Family(
        "windlass_kind_paused",
        "gauge",
        "Whether none of a kind's jobs may start: it is paused, or all that it waits in.",
        _KIND,
    ),
    Family(
        "windlass_kind_duration_seconds",
        "gauge",
        "Percentiles of how long runs took, over the last hour.",
        ("kind", "percentile"),
    ),
    Family(
        "windlass_kind_wait_seconds",
        "gauge",
        "Percentiles of how long jobs waited, over the last hour.",
        ("kind", "percentile"),
    ),
    Family(
        "windlass_breaker_state",
        "gauge",
        "Of a circuit breaker: 0 closed, 1 half-open, 2 open.",
        ("breaker",),
    ),
    Family("windlass_limit_in_use", "gauge", "Tokens of a limit that workers hold.", ("limit",)),
    Family("windlass_workers", "gauge", "Workers with a lease, by state.", ("state",)),
    Family(
        "windlass_schedule_lag_seconds",
        "gauge",
        "For how long the tick of a schedule that is latest has been due.",
    ),
    Family(
        "windlass_snapshot_age_seconds",
        "gauge",
        "For how long somebody has held a snapshot of the database open.",
    ),
    Family("windlass_sample_age_seconds", "gauge", "How old these cluster-wide figures are."),
    Family("windlass_sample_duration_seconds", "gauge", "How long the store took to give them."),
)
"""What is true of all workers together: sampled by one of them, and the same wherever one asks."""

FAMILIES = MappingProxyType(
    {each.name: each for each in (*OF_RUNS, *OF_PROCESSES, *OF_SUPERVISOR, *OF_CLUSTER)}
)
