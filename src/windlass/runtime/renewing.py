"""Owns how a supervisor renews the lease of a worker: for as long as it deserves it."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import timedelta

from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.core.job import Pulse
from windlass.observe.logs import get_logger
from windlass.runtime import leash
from windlass.runtime.heart import NEWS, has_news
from windlass.runtime.waits import first
from windlass.runtime.ward import Ward
from windlass.store import Store

log = get_logger("windlass.supervisor")


async def keep_lease(ward: Ward) -> None:
    """Renew a worker's lease until its process has ended."""
    settings, store = ward.settings, ward.store
    if settings is None or store is None:
        return
    interval = settings.lease / 3
    await first(ward.beating.wait(), ward.ended.wait(), patience=interval.total_seconds())
    due, told, known = -math.inf, Pulse(), ""
    while not ward.ended.is_set():
        has_more = known != ward.worker or has_news(told, ward.pulse)
        if ward.worker and not ward.is_stopped and (has_more or time.monotonic() >= due):
            told, known = ward.pulse, ward.worker
            good_for = await _renew(store, ward, interval)
            due = time.monotonic() + good_for.total_seconds()
        left = due - time.monotonic()
        wait = left if left > 0 else interval.total_seconds()
        await first(ward.ended.wait(), patience=min(wait, NEWS))


async def _renew(store: Store, ward: Ward, interval: timedelta) -> timedelta:
    worker = ward.worker
    lag = timedelta(seconds=round(ward.lag, 3))
    pulse = replace(ward.pulse, loop_lag=lag, metrics=ward.metrics)
    began = time.monotonic()
    try:
        alive = await asyncio.to_thread(store.heartbeat, worker, pulse, interval)
    except WindlassError as error:
        log.warning("heartbeat.failed", worker_id=worker, error=str(error))
        ward.meters.call_failed("heartbeat")
        return min(timedelta(seconds=1), interval)
    except Exception:
        log.exception("heartbeat.failed", worker_id=worker)
        return min(timedelta(seconds=1), interval)
    ward.meters.called("heartbeat", time.monotonic() - began)
    ward.renewed_at = time.monotonic() if alive else ward.renewed_at
    if worker != ward.worker or (ward.leaving and not alive):
        return interval  # It has given its lease back meanwhile.
    if not alive:
        log.error("lease.lost", worker_id=worker, pid=ward.pid)
    ward.leash.say(leash.Renewed() if alive else leash.Lost(worker))
    return interval
