"""Owns a job that waits, the workers around it, and the reasons that are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.why.explain import Scene, explain
from windlass.core.why.reason import Cause, Reason
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ID = job_id(1, 1)


def a_job(**facts: Any) -> Job:
    usual: dict[str, Any] = {
        "id": ID,
        "kind": "send",
        "queue": "mail",
        "priority": 0,
        "key": "",
        "state": State.PENDING,
        "payload": b"{}",
        "due_at": NOW - MINUTE,
        "created_at": NOW - MINUTE,
    }
    return Job(**usual | facts)


def a_worker(name: str = "w1", *, alive: bool = True, **told: Any) -> WorkerRecord:
    pulse = told.pop("pulse", WorkerPulse())
    usual: dict[str, Any] = {"slots": 4, "kinds": ("send",)}
    info = WorkerInfo(
        id=name,
        name=name,
        host="host",
        pid=1,
        release="1",
        lease=30 * SECOND,
        **usual | told,
    )
    until = NOW + 20 * SECOND if alive else NOW - 5 * SECOND
    return WorkerRecord(
        info=info, pulse=pulse, started_at=NOW, last_seen=NOW, lease_until=until, alive=alive
    )


def reasons(job: Job, **scene: Any) -> tuple[Reason, ...]:
    usual: dict[str, Any] = {"now": NOW, "workers": [a_worker()]}
    found = explain(job, Scene(**usual | scene))
    assert all(each.message for each in found)
    return found


def only(job: Job, **scene: Any) -> Reason:
    (reason,) = reasons(job, **scene)
    return reason


def causes(job: Job, **scene: Any) -> list[Cause]:
    return [each.cause for each in reasons(job, **scene)]
