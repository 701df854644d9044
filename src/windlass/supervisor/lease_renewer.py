"""Owns the renewal of a worker's lease by its supervisor until the process has ended."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.observability.logs import get_logger
from windlass.process.grace_periods import BEAT_SECONDS
from windlass.process.outage import Outage, is_away
from windlass.process.supervisor_channel import Lost, Renewed
from windlass.process.waits import first, in_thread
from windlass.store import Store
from windlass.supervisor.worker_process import WorkerProcess

log = get_logger("windlass.supervisor")
_RETRY = timedelta(seconds=1)


async def keep_lease(process: WorkerProcess, outage: Outage) -> None:
    """Renew a worker's lease until its process has ended."""
    settings, store = process.settings, process.store
    if settings is None or store is None:
        return
    interval = settings.lease / 3
    await first(process.beating.wait(), process.ended.wait(), patience=interval.total_seconds())
    while not process.ended.is_set():
        wait = min(interval.total_seconds(), BEAT_SECONDS)
        if process.worker and not process.is_stopped:
            wait = min(wait, (await _renew(store, process, interval, outage)).total_seconds())
        await first(process.ended.wait(), patience=wait)


async def _renew(
    store: Store, process: WorkerProcess, interval: timedelta, outage: Outage
) -> timedelta:
    # One name for all workers: the answer to the successor of a worker counts for it, too.
    worker, service = process.worker, "leases"
    lag = timedelta(seconds=round(process.lag, 3))
    pulse = replace(process.pulse, loop_lag=lag, metrics=process.metrics)
    began = time.monotonic()
    try:
        alive = await in_thread(partial(store.heartbeat, worker, pulse, interval))
    except WindlassError as error:
        away = is_away(error)
        report = log.debug if away else log.warning
        report("heartbeat.failed", worker_id=worker, error=str(error))
        if away:
            outage.failed(service, error)
        process.meters.call_failed("heartbeat")
        return min(_RETRY, interval)
    except Exception:
        log.exception("heartbeat.failed", worker_id=worker)
        return min(_RETRY, interval)
    outage.answered(service)
    process.meters.called("heartbeat", time.monotonic() - began)
    process.renewed_at = time.monotonic() if alive else process.renewed_at
    if worker != process.worker or (process.leaving and not alive):
        return interval  # The worker has given back its lease meanwhile.
    if not alive:
        log.error("lease.lost", worker_id=worker, pid=process.pid)
    process.channel.offer(Renewed() if alive else Lost(worker))
    return interval
