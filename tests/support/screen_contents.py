"""Owns the figures of stores for tests of `windlass top`: a busy one, with problems."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from windlass.app.snapshot import Snapshot
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.depths import Connections
from windlass.core.stats.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures

NOW = datetime(2026, 3, 1, 12, 0, 3, tzinfo=UTC)
GROWS = "jobs arrive at least as fast as they finish: it never becomes empty"


def queue(name: str = "mail", *, pending: int = 0, dead: int = 0, **changes: Any) -> QueueFigures:
    """Make a queue that is served, and drains."""
    usual: dict[str, Any] = {
        "capped": frozenset(),
        "oldest": 2.0 if pending else None,
        "paused": False,
        "workers": 1,
        "slots": 10,
        "arrival_rate": 1.0,
        "service_rate": 1.0,
        "estimated": False,
        "seconds_to_empty": 3.2 if pending else 0.0,
        "slots_needed": 1.0,
        "arrivals": tuple(float(each % 8) for each in range(40)),
        "services": (1.0,) * 40,
        "unknown": {},
    }
    jobs = {"pending": pending, "running": 1, "dead": dead}
    return QueueFigures(name=name, jobs=jobs, **usual | changes)


def kind(
    name: str = "send_email", *, runs: int = 1_200, failed: int = 0, dead: int = 0
) -> KindFigures:
    """Make a kind that has run for an hour."""
    return KindFigures(
        name=name,
        runs=runs,
        completed=runs - failed,
        failed=failed,
        retried=failed - dead,
        dead=dead,
        cancelled=0,
        error_rate=failed / runs if runs else None,
        rate=runs / 3600,
        durations={"p50": 0.82, "p95": 2.1, "p99": 4.4},
        waits={"p50": 0.001, "p95": 0.01, "p99": 0.1},
        busy=1.2,
        history=tuple(
            runs // 12 + runs * step // 200 for step in (0, 2, 1, 3, 2, 5, 4, 6, 7, 9, 8, 9)
        ),
        failures=(failed // 12,) * 12,
    )


def error(
    text: str = "ValueError: no", *, count: int = 4, dead: int = 3, **changes: Any
) -> ErrorFigures:
    """Make an error of which jobs died."""
    usual: dict[str, Any] = {
        "group": "a3f09c11d2",
        "kind": "send_email",
        "history": (0,) * 8 + (count // 4,) * 4,
        "first_seen": NOW - timedelta(minutes=20),
        "last_seen": NOW - timedelta(seconds=2),
    }
    return ErrorFigures(error=text, count=count, dead=dead, **usual | changes)


def worker(name: str = "web1-41", *, busy: int = 3, **changes: Any) -> WorkerFigures:
    """Make a worker that has room."""
    usual: dict[str, Any] = {
        "host": "web1",
        "pid": 41,
        "state": "running",
        "slots": 10,
        "threads": 10,
        "in_threads": 1,
        "isolated_processes": 2,
        "processed": 120_311,
        "cpu": 0.82,
        "memory": 231_000_000,
        "pool": Connections(open=4, in_use=2, limit=10),
        "queues": (),
        "last_seen": NOW - timedelta(seconds=1),
    }
    return WorkerFigures(id=name, busy=busy, **usual | changes)


def snapshot(
    *,
    queues: tuple[QueueFigures, ...] = (),
    kinds: tuple[KindFigures, ...] = (),
    errors: tuple[ErrorFigures, ...] = (),
    workers: tuple[WorkerFigures, ...] = (),
    pauses: Pauses | None = None,
    **changes: Any,
) -> Snapshot:
    """Make the answer of a store."""
    slots, busy = sum(each.slots for each in workers), sum(each.busy for each in workers)
    usual: dict[str, Any] = {
        "count_age": 0.0,
        "sample_age": 4.0 if workers else None,
        "sampled_at": NOW - timedelta(seconds=4) if workers else None,
        "arrival_rate": 13.7 if workers else None,
        "service_rate": 11.1 if workers else None,
        "estimated": False,
        "seconds_to_empty": 3.2 if workers else None,
        "slots_needed": 2.1 if workers else None,
        "arrivals": (),
        "services": (),
        "unknown": {},
    }
    stats = Stats(
        at=NOW,
        queues=queues,
        kinds=kinds,
        errors=errors,
        workers=workers,
        slots=slots,
        busy=busy,
        utilisation=busy / slots if slots else None,
        **usual | changes,
    )
    return Snapshot(stats=stats, pauses=pauses or Pauses(), location="sqlite:///windlass.db")


def busy() -> Snapshot:
    """Make a store in which one queue grows, and one is paused: what the docs show."""
    mail = queue(
        "mail",
        pending=1_204,
        dead=3,
        oldest=124.0,
        arrival_rate=12.4,
        service_rate=10.1,
        seconds_to_empty=None,
        arrivals=(5.2,) * 32 + (5.1, 6.0, 7.4, 9.2, 10.3, 11.8, 12.1, 12.4),
        unknown={"seconds_to_empty": GROWS},
    )
    images = queue(
        "images", pending=12, oldest=0.4, arrivals=(0.4, 1.2, 0.8, 1.4, 1.0, 0.5, 1.1, 1.3)
    )
    billing = queue(
        "billing", pending=30, paused=True, oldest=912.0, seconds_to_empty=None, arrivals=()
    )
    lost = error(
        "ConnectionError: mx1.example.org is gone",
        count=264,
        history=(0, 0, 0, 0, 0, 0, 2, 9, 30, 61, 77, 85),
    )
    odd = error(
        "ValueError: not an image",
        count=2,
        dead=0,
        kind="resize_image",
        group="77aa09c1ff",
        history=(0,) * 9 + (1, 1, 0),
        last_seen=NOW - timedelta(minutes=9),
    )
    return snapshot(
        queues=(mail, images, billing),
        kinds=(kind(runs=2_400, failed=264, dead=3), kind("resize_image", runs=500, failed=2)),
        errors=(lost, odd),
        workers=(worker("web1:4121:1f3a09bc", busy=10), worker("web2:977:c20e11a5", busy=7)),
        pauses=Pauses(queues=frozenset({"billing"})),
        arrival_rate=13.4,
        service_rate=11.2,
        seconds_to_empty=None,
        slots_needed=21.3,
        unknown={"seconds_to_empty": f"mail: {GROWS}"},
    )
