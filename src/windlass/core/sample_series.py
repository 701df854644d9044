"""Owns how the cluster-wide figures are shown to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.core.job import Json
from windlass.core.metrics import Series
from windlass.core.sample import Sample, read_sample
from windlass.core.states import State

_STATES = tuple(
    state.value for state in (State.PENDING, State.RUNNING, State.SCHEDULED, State.DEAD)
)
"""Those that a queue is told with though it has none: who compares with earlier needs the 0."""


def series_of(record: Json, *, age: float) -> dict[str, Series]:
    """Return the families of a sample that is so many seconds old."""
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
        "windlass_breaker_state": {(name,): value for name, value in sample.breakers.items()},
        "windlass_limit_in_use": {(name,): value for name, value in sample.limits.items()},
        "windlass_workers": {(state,): value for state, value in sample.workers.items()},
        "windlass_schedule_lag_seconds": {(): sample.schedule_lag},
        "windlass_sample_age_seconds": {(): age},
        "windlass_sample_duration_seconds": {(): sample.seconds},
    }
    if sample.snapshot_age is not None:
        found["windlass_snapshot_age_seconds"] = {(): sample.snapshot_age}
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
