"""Owns how the cluster-wide figures are exposed to Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import Series
from windlass.core.records import Json
from windlass.core.stats.cluster_sample import Sample, read_sample

_STATES = tuple(
    state.value for state in (State.PENDING, State.RUNNING, State.SCHEDULED, State.DEAD)
)
"""States that every queue reports, even as 0: comparisons over time need the zero."""


def series_of(record: Json, *, age: float) -> dict[str, Series]:
    """Return the families of a sample of this age in seconds."""
    sample = read_sample(record)
    if sample is None:
        return {}
    queues, kinds = sample.queues.items(), sample.kinds.items()
    found: dict[str, Series] = {
        **_of_queues(sample),
        "windlass_kind_oldest_pending_seconds": {
            (name,): kind.oldest + age for name, kind in kinds if kind.oldest is not None
        },
        "windlass_kind_target_seconds": {
            (name,): kind.target for name, kind in kinds if kind.target is not None
        },
        "windlass_kind_paused": {(name,): float(kind.paused) for name, kind in kinds},
        "windlass_kind_duration_seconds": _percentiles((n, k.durations) for n, k in kinds),
        "windlass_kind_wait_seconds": _percentiles((n, k.waits) for n, k in kinds),
        "windlass_queue_oldest_pending_seconds": {
            (name,): 0.0 if queue.oldest is None else queue.oldest + age for name, queue in queues
        },
        "windlass_kind_short": {
            (name, pool): 1.0 for pool, names in sample.short.items() for name in names
        },
        "windlass_breaker_state": {(name,): value for name, value in sample.breakers.items()},
        "windlass_breaker_pinned": {
            (name,): float(name in sample.pinned) for name in (*sample.breakers, *sample.pinned)
        },
        "windlass_limit_in_use": {(name,): value for name, value in sample.limits.items()},
        "windlass_workers": {(state,): value for state, value in sample.workers.items()},
        "windlass_store_findings": {
            (name,): float(count) for name, count in Counter(sample.findings).items()
        },
        "windlass_schedule_lag_seconds": {(): sample.schedule_lag},
        "windlass_sample_age_seconds": {(): age},
        "windlass_sample_duration_seconds": {(): sample.seconds},
    }
    if sample.snapshot_age is not None:
        found["windlass_snapshot_age_seconds"] = {(): sample.snapshot_age}
    if sample.disk is not None:
        found["windlass_store_disk_free_bytes"] = {(): sample.disk.free}
        found["windlass_store_disk_bytes"] = {(): sample.disk.size}
    return found


def _of_queues(sample: Sample) -> dict[str, Series]:
    queues = sample.queues.items()
    states = [
        (name, queue, state)
        for name, queue in queues
        for state in dict.fromkeys((*_STATES, *queue.jobs))
    ]
    return {
        "windlass_queue_jobs": {
            (name, state): queue.jobs.get(state, 0) for name, queue, state in states
        },
        "windlass_queue_jobs_capped": {
            (name, state): float(state in queue.capped) for name, queue, state in states
        },
        "windlass_queue_workers": {(name,): queue.workers for name, queue in queues},
        "windlass_queue_unserved_lanes": {(name,): queue.unserved for name, queue in queues},
        "windlass_queue_paused": {(name,): float(queue.paused) for name, queue in queues},
        "windlass_queue_arrival_rate": {
            (name,): queue.arrival_rate for name, queue in queues if queue.arrival_rate is not None
        },
        "windlass_queue_service_rate": {
            (name,): queue.service_rate for name, queue in queues if queue.service_rate is not None
        },
    }


def _percentiles(kinds: Iterable[tuple[str, Mapping[str, float]]]) -> Series:
    return {
        (name, percentile): seconds
        for name, percentiles in kinds
        for percentile, seconds in percentiles.items()
    }
