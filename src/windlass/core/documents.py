"""Owns the JSON documents of jobs, workers, limits and so on for scripts.

Keys are stable; times are ISO 8601 in UTC, durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from windlass.core.failures.fingerprint import place
from windlass.core.jobs.job import Attempt, ErrorInfo, Job
from windlass.core.jobs.queries import ErrorGroup, ErrorGroups, Page
from windlass.core.payloads.masked_job import value_of
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.limit_usage import LimitState
from windlass.core.schedules.status import ScheduleStatus
from windlass.core.stats.stats import Stats
from windlass.core.why.reason import Reason
from windlass.core.workers import WorkerRecord
from windlass.core.workflows.step_rows import step_facts

Facts = dict[str, Any]


def job_summary(job: Job) -> Facts:
    return {
        "id": str(job.id),
        "kind": job.kind,
        "queue": job.queue,
        "priority": job.priority,
        "state": job.state.value,
        "created_at": iso(job.created_at),
        "due_at": iso(job.due_at),
        "started_at": iso(job.started_at),
        "finished_at": iso(job.finished_at),
        "attempt": job.attempt,
        "failures": job.failures,
        "crashes": job.crashes,
        "worker": job.worker,
        "reason": job.reason,
        "error": None if job.error is None else str(job.error),
    }


def job_facts(job: Job) -> Facts:
    """Return all facts about a job, but for the token of its lease."""
    return {
        **job_summary(job),
        "error": _error(job.error),
        "expires_at": iso(job.expires_at),
        "max_retries": job.max_retries,
        "timeout": None if job.timeout is None else job.timeout.total_seconds(),
        "unique_key": job.unique_key,
        "key": job.key,
        "tags": list(job.tags),
        "headers": job.headers,
        "waiting_for": job.waiting_for,
        "flow": None if job.flow is None else str(job.flow),
        "cancel_requested": job.cancel_requested,
        "progress": None
        if job.progress is None
        else {"fraction": job.progress.fraction, "message": job.progress.message},
        "payload": value_of(job.payload),
        "result": None if job.result is None else value_of(job.result),
        "history": [_attempt(attempt) for attempt in job.history],
        "steps": step_facts(job),
        "saga": None if job.saga is None else job.saga.value,
    }


def page_facts(page: Page) -> Facts:
    """Return a page of jobs; `after` continues it."""
    return {
        "jobs": [job_summary(job) for job in page.jobs],
        "after": None if page.after is None else str(page.after),
        "searched_to": None if page.searched_to is None else str(page.searched_to),
    }


def worker_facts(worker: WorkerRecord) -> Facts:
    info, pulse = worker.info, worker.pulse
    return {
        "id": info.id,
        "name": info.name,
        "host": info.host,
        "pid": info.pid,
        "release": info.release,
        "alive": worker.alive,
        "state": pulse.state if worker.alive else "gone",
        "started_at": iso(worker.started_at),
        "last_seen": iso(worker.last_seen),
        "lease_until": iso(worker.lease_until),
        "processed": pulse.processed,
        "running": pulse.running if worker.alive else 0,
        "slots": pulse.slots or info.least_slots or info.slots,
        "least_slots": info.least_slots or info.slots,
        "most_slots": info.slots,
        "threads": info.threads,
        "in_threads": pulse.in_threads if worker.alive else 0,
        "isolated_processes": info.isolated_processes,
        "in_isolated_processes": pulse.in_isolated_processes if worker.alive else 0,
        "metrics": pulse.metrics if worker.alive else "",
        "listening": worker.alive and pulse.listening,
        "clock_ahead": pulse.clock_ahead.total_seconds(),
        "queues": list(info.queues),
        "queue_slots": info.queue_slots,
        "excluded": list(info.excluded),
        "kinds": list(info.kinds),
    }


def reason_facts(reason: Reason) -> Facts:
    """Return one reason why a job does not run, or what became of it."""
    return {
        "cause": reason.cause.value,
        "message": reason.message,
        "remedy": reason.remedy or None,
        "since": iso(reason.since),
        "until": iso(reason.until),
        "facts": dict(reason.facts),
    }


def group_facts(group: ErrorGroup) -> Facts:
    return {
        "group": group.fingerprint,
        "kind": group.kind,
        "count": group.count,
        "first_seen": iso(group.first_seen),
        "last_seen": iso(group.last_seen),
        "newest": str(group.newest),
        "error": None if group.error is None else str(group.error),
        "place": None if group.error is None else place(group.error),
        "reason": group.reason,
    }


def groups_facts(groups: ErrorGroups) -> Facts:
    """Return errors, and how far back dead jobs were looked at: null if all were."""
    return {
        "groups": [group_facts(group) for group in groups],
        "searched_to": iso(groups.searched_to),
    }


def limit_facts(limit: LimitState) -> Facts:
    return {
        "limit": limit.name,
        "per": "key" if limit.keyed else None,
        "rate": limit.rate,
        "burst": limit.burst,
        "concurrency": limit.concurrency,
        "changed": limit.changed,
        "held": limit.held,
        "used": limit.used,
        "holders": dict(limit.holders),
        "exhausted": limit.exhausted,
        "kinds": list(limit.kinds),
    }


def schedule_facts(status: ScheduleStatus) -> Facts:
    record, schedule = status.record, status.record.schedule
    every = schedule.cadence.every
    return {
        "schedule": status.name,
        "state": status.state,
        "kind": schedule.job.kind,
        "queue": schedule.job.queue,
        "every": None if every is None else every.total_seconds(),
        "cron": schedule.cadence.cron or None,
        "tz": None if every is not None else schedule.cadence.tz,
        "jitter": schedule.jitter.total_seconds(),
        "catch_up": schedule.catch_up,
        "catch_up_limit": schedule.catch_up_limit,
        "overlap": schedule.overlap,
        "declared": schedule.declared,
        "next": iso(status.next),
        "last_tick": iso(record.last_tick),
        "last_job": None if record.last_job is None else str(record.last_job),
        "ticks": record.ticks,
        "skipped": record.skipped,
        "since": iso(record.since),
        "paused_at": iso(record.paused_at),
    }


def breaker_facts(status: BreakerStatus, *, history: bool = True) -> Facts:
    """Return the facts about a breaker, with the history of its changes or without."""
    document: Facts = {
        "breaker": status.name,
        "state": status.state.value,
        "forced": status.forced,
        "failures": status.failures,
        "opened_at": iso(status.opened_at),
        "until": iso(status.until),
        "why": status.why,
        "probes": dict(status.probes),
        "kinds": list(status.kinds),
        "changes": status.changes,
    }
    if history:
        document["history"] = [
            {
                "at": iso(change.at),
                "from": change.old.value,
                "to": change.new.value,
                "why": change.why,
                "by": change.by,
            }
            for change in status.history
        ]
    return document


def figures_facts(found: Stats) -> Facts:
    """Return all figures by the names of their fields, times as ISO 8601, spans in seconds."""
    plain: Facts = _plain(found)
    return plain


def iso(moment: datetime | None) -> str | None:
    """Write an instant for scripts."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _attempt(attempt: Attempt) -> Facts:
    return {
        "number": attempt.number,
        "worker": attempt.worker,
        "started_at": iso(attempt.started_at),
        "duration": attempt.duration.total_seconds(),
        "outcome": attempt.outcome,
        "error": _error(attempt.error),
        "retry_at": iso(attempt.retry_at),
    }


def _error(error: ErrorInfo | None) -> Facts | None:
    if error is None:
        return None
    return {
        "type": error.type,
        "message": error.message,
        "traceback": error.traceback,
        "class": None if error.error_class is None else error.error_class.value,
        "group": error.fingerprint,
    }


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return iso(value)
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            return msgspec.to_builtins(value)
