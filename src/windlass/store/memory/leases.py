"""Owns the leases of the memory store."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.protocol import WORKERS_KEPT


class _Lease(Struct):
    info: WorkerInfo
    pulse: WorkerPulse
    started_at: datetime
    last_seen: datetime
    since: datetime
    """Since when the worker has renewed without a gap."""
    until: datetime
    ended: bool = False

    def is_live(self, now: datetime) -> bool:
        # After the clock was set back, a dead lease must not live for as long as it went back.
        return not self.ended and self.until > now and self.last_seen <= now + self.info.lease


class Leases:
    """The leases of all workers that are remembered, by worker id."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}

    def begin(self, worker: WorkerInfo, now: datetime) -> None:
        self._leases[worker.id] = _Lease(
            info=worker,
            pulse=WorkerPulse(),
            started_at=now,
            last_seen=now,
            since=now,
            until=now + worker.lease,
        )

    def renew(self, worker: str, pulse: WorkerPulse, now: datetime) -> bool:
        """Renew a lease unless it was ended; return whether it was renewed."""
        lease = self._leases.get(worker)
        if lease is None or lease.ended:
            return False
        if now - lease.last_seen > lease.info.lease or now < lease.since:
            lease.since = now
        lease.pulse = pulse
        lease.last_seen = now
        lease.until = now + lease.info.lease
        return True

    def end(self, worker: str) -> None:
        """End a lease for good."""
        if (lease := self._leases.get(worker)) is not None:
            lease.ended = True

    def end_expired(self, now: datetime) -> None:
        for lease in self._leases.values():
            lease.ended |= not lease.is_live(now)

    def is_live(self, worker: str, now: datetime) -> bool:
        """Return whether a worker has a lease that is neither ended nor run out."""
        lease = self._leases.get(worker)
        return lease is not None and lease.is_live(now)

    def may_rescue(self, worker: str, now: datetime) -> bool:
        """Return whether a worker has renewed without a gap for one whole lease."""
        lease = self._leases.get(worker)
        return lease is not None and lease.is_live(now) and now - lease.since >= lease.info.lease

    def is_ended(self, worker: str | None) -> bool:
        """Return whether a worker's lease was ended, or is unknown."""
        lease = self._leases.get(worker or "")
        return lease is None or lease.ended

    def prune(self, now: datetime) -> int:
        """Forget workers whose leases ended long ago; return how many."""
        spent = [
            worker
            for worker, lease in self._leases.items()
            if lease.ended and now - lease.last_seen > WORKERS_KEPT
        ]
        for worker in spent:
            del self._leases[worker]
        return len(spent)

    def workers(self, now: datetime) -> list[WorkerRecord]:
        """Return the workers, newest first."""
        workers = [
            WorkerRecord(
                info=lease.info,
                pulse=lease.pulse,
                started_at=lease.started_at,
                last_seen=lease.last_seen,
                lease_until=lease.until,
                alive=lease.is_live(now),
                ended=lease.ended,
            )
            for lease in self._leases.values()
        ]
        return sorted(workers, key=lambda worker: worker.started_at, reverse=True)
