"""Owns figures of a store for tests of the picture: a busy one, with things that are wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from windlass.cli.screen.panels import Looked
from windlass.core.job import Connections
from windlass.core.pauses import Pauses
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures, Stats, WorkerFigures

NOW = datetime(2026, 3, 1, 12, 0, 3, tzinfo=UTC)
GROWS = "as much comes as leaves, or more: it does not drain"


def queue(name: str = "mail", *, pending: int = 0, dead: int = 0, **told: Any) -> QueueFigures:
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
        "drain_seconds": 3.2 if pending else 0.0,
        "slots_needed": 1.0,
        "arrivals": tuple(float(each % 8) for each in range(40)),
        "services": (1.0,) * 40,
        "unknown": {},
    }
    jobs = {"pending": pending, "running": 1, "dead": dead}
    return QueueFigures(name=name, jobs=jobs, **usual | told)


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
    text: str = "ValueError: no", *, count: int = 4, dead: int = 3, **told: Any
) -> ErrorFigures:
    """Make an error of which jobs died."""
    usual: dict[str, Any] = {
        "group": "a3f09c11d2",
        "kind": "send_email",
        "history": (0,) * 8 + (count // 4,) * 4,
        "first_seen": NOW - timedelta(minutes=20),
        "last_seen": NOW - timedelta(seconds=2),
    }
    return ErrorFigures(error=text, count=count, dead=dead, **usual | told)


def worker(name: str = "web1-41", *, busy: int = 3, **told: Any) -> WorkerFigures:
    """Make a worker that has room."""
    usual: dict[str, Any] = {
        "host": "web1",
        "pid": 41,
        "state": "running",
        "slots": 10,
        "processed": 120_311,
        "cpu": 0.82,
        "memory": 231_000_000,
        "pool": Connections(open=4, in_use=2, limit=10),
        "queues": (),
        "last_seen": NOW - timedelta(seconds=1),
    }
    return WorkerFigures(id=name, busy=busy, **usual | told)


def looked(
    *,
    queues: tuple[QueueFigures, ...] = (),
    kinds: tuple[KindFigures, ...] = (),
    errors: tuple[ErrorFigures, ...] = (),
    workers: tuple[WorkerFigures, ...] = (),
    pauses: Pauses | None = None,
    **told: Any,
) -> Looked:
    """Make what the store said."""
    slots, busy = sum(each.slots for each in workers), sum(each.busy for each in workers)
    usual: dict[str, Any] = {
        "sample_age": 4.0 if workers else None,
        "arrival_rate": 13.7 if workers else None,
        "service_rate": 11.1 if workers else None,
        "estimated": False,
        "drain_seconds": 3.2 if workers else None,
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
        **usual | told,
    )
    return Looked(stats=stats, pauses=pauses or Pauses(), location="sqlite:///windlass.db")


def busy() -> Looked:
    """Make a store in which one queue grows, and one is paused: what the docs show."""
    mail = queue(
        "mail",
        pending=1_204,
        dead=3,
        oldest=124.0,
        arrival_rate=12.4,
        service_rate=10.1,
        drain_seconds=None,
        arrivals=(5.2,) * 32 + (5.1, 6.0, 7.4, 9.2, 10.3, 11.8, 12.1, 12.4),
        unknown={"drain_seconds": GROWS},
    )
    images = queue(
        "images", pending=12, oldest=0.4, arrivals=(0.4, 1.2, 0.8, 1.4, 1.0, 0.5, 1.1, 1.3)
    )
    billing = queue(
        "billing", pending=30, paused=True, oldest=912.0, drain_seconds=None, arrivals=()
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
    return looked(
        queues=(mail, images, billing),
        kinds=(kind(runs=2_400, failed=264, dead=3), kind("resize_image", runs=500, failed=2)),
        errors=(lost, odd),
        workers=(worker("web1:4121:1f3a09bc", busy=10), worker("web2:977:c20e11a5", busy=7)),
        pauses=Pauses(queues=frozenset({"billing"})),
        arrival_rate=13.4,
        service_rate=11.2,
        drain_seconds=None,
        slots_needed=21.3,
        unknown={"drain_seconds": f"mail: {GROWS}"},
    )
