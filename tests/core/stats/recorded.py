"""Owns workers, runs and queues as they are recorded, and the figures of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from windlass.core.metrics.histogram import bucket_of
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.pauses import Pauses
from windlass.core.records import Json
from windlass.core.stats.cluster_sample import QueueSample, Sample
from windlass.core.stats.kind_history import RECORD, Window, recorded
from windlass.core.stats.sample_history import History
from windlass.core.stats.stats import QueueFigures, Stats, StatsFacts, stats_of
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord

NOW = datetime(2030, 1, 1, 12, 4, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def worker(name: str = "w", *, slots: int = 10, alive: bool = True, **told: Any) -> WorkerRecord:
    pulse = told.pop("pulse", WorkerPulse())
    info = WorkerInfo(
        id=name,
        name=name,
        host="h",
        pid=1,
        release="1",
        lease=SECOND,
        slots=slots,
        **{"kinds": ("send",)} | told,
    )
    return WorkerRecord(
        info=info,
        pulse=pulse,
        started_at=NOW - timedelta(days=1),
        last_seen=NOW,
        lease_until=NOW,
        alive=alive,
    )


def runs(count: int, seconds: float, **told: Any) -> Window:
    buckets = [bucket_of(seconds), count]
    usual: dict[str, Any] = {"completed": count, "durations": buckets, "waits": buckets}
    return Window(**usual | told)


def record(window: Window, *, ago: timedelta = timedelta(0), **told: Any) -> Json:
    return recorded(None, window, told.pop("left", {"mail": window.completed}), NOW - ago, **told)


def queue(**told: Any) -> QueueSample:
    usual: dict[str, Any] = {
        "jobs": {"pending": 100},
        "oldest": 60.0,
        "arrival_rate": 2.0,
        "service_rate": 6.0,
    }
    return QueueSample(**usual | told)


def stats(*queues: QueueSample, **told: Any) -> Stats:
    """Make figures of queues that are called mail, files and so on, and of what else is told."""
    names = dict(zip(("mail", "files", "pictures"), queues, strict=False))
    narrowed = {name: told.pop(name) for name in ("queue", "kind", "among") if name in told}
    usual: dict[str, Any] = {
        "now": NOW,
        "sample": Sample(at=NOW.timestamp(), by="w", queues=names),
        "sampled_at": NOW,
        "history": History(),
        "kinds": {RECORD + "send": record(runs(100, 2.0))},
        "groups": (),
        "workers": (worker(),),
        "pauses": Pauses(),
        "redaction": Redaction(),
    }
    return stats_of(StatsFacts(**usual | told), **narrowed)


def mail(*queues: QueueSample, **told: Any) -> QueueFigures:
    (found,) = stats(*queues, **told).queues
    return found


def both_queues() -> dict[str, Json]:
    return {RECORD + "send": record(runs(100, 2.0), left={"mail": 50, "files": 50})}


def young() -> WorkerRecord:
    return msgspec.structs.replace(worker(), started_at=NOW - 30 * SECOND)
