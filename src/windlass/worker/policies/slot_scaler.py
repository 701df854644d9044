"""Owns the measurements behind `concurrency=5..100` and `processes=1..8`; core/autoscale.py
decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sized

from msgspec import Struct

from windlass.core.autoscale import (
    Decision,
    Pauses,
    SlotsLoad,
    scale_slots,
)
from windlass.core.values.ranges import Bounds
from windlass.observability.logs import get_logger
from windlass.process.gauges import Average, Peak, Typical
from windlass.process.service import Service
from windlass.settings import usable_cpus
from windlass.worker.state import WorkerState

log = get_logger("windlass.scaler")
_LAG_SAMPLES = 5


class Look(Struct, frozen=True, kw_only=True):
    """A snapshot of a worker; its counts only grow."""

    now: float
    due: float
    """When this snapshot was due, by the event loop's own timer."""
    waiting: bool
    peak: int
    processed: int
    served: float
    """Total seconds that ended jobs took."""
    loop_cpu: float
    """CPU seconds of the thread in which the event loop runs."""
    process_cpu: float


class SlotsGauge:
    """Turns snapshots of a worker into measurements. It has no clock: each snapshot has
    its time.
    """

    def __init__(self, pauses: Pauses, cpus: int, first: Look) -> None:
        self._pauses = pauses
        self._cpus = cpus
        self._last = first
        self._changed = first.now
        self._strained_at: int | None = None
        self._strained = -math.inf
        self._peak = Peak(pauses.fall)
        self._lag = Typical(_LAG_SAMPLES)
        self._served, self._rate, self._cpu = (Average(4 * pauses.look) for _ in range(3))

    def take(self, look: Look) -> SlotsLoad:
        """Add a snapshot, and return the current measurement."""
        last, self._last = self._last, look
        lasted = max(look.now - last.now, 1e-6)
        self._served.add((look.served - last.served) / lasted, lasted)
        self._rate.add((look.processed - last.processed) / lasted, lasted)
        loop = (look.loop_cpu - last.loop_cpu) / lasted
        self._cpu.add(
            max(loop, (look.process_cpu - last.process_cpu) / lasted / self._cpus), lasted
        )
        rate = self._rate.value
        return SlotsLoad(
            waiting=look.waiting,
            peak=int(self._peak.add(look.peak, look.now)),
            service_time=self._served.value / rate if rate else None,
            throughput=rate,
            lag=self._lag.add(max(look.now - look.due, 0.0)),
            cpu=self._cpu.value,
            since_change=look.now - self._changed,
            strained_at=self._strained_at,
            since_strain=look.now - self._strained,
        )

    def changed(self, decision: Decision) -> None:
        """Start anew, since earlier measurements belong to another number of slots."""
        self._changed = self._last.now
        if decision.too_much is not None:
            self._strained_at, self._strained = decision.too_much, self._last.now
        for gauge in (self._lag, self._served, self._rate, self._cpu):
            gauge.reset()


class SlotScaler(Service):
    """Adapts the slots of a worker to its load, and logs every change with its reason."""

    name = "scaler"

    def __init__(
        self,
        bounds: Bounds,
        pauses: Pauses,
        *,
        state: WorkerState,
        demand: Demand,
    ) -> None:
        super().__init__()
        self._bounds = bounds
        self._pauses = pauses
        self._state = state
        self._demand = demand
        self._due = time.monotonic()
        self._gauge: SlotsGauge | None = None

    async def tick(self) -> float:
        look = self._look()
        if self._gauge is None:
            self._gauge = SlotsGauge(self._pauses, usable_cpus(), look)
        else:
            self._consider(self._gauge, self._gauge.take(look))
        self._due = time.monotonic() + self._pauses.look
        return self._pauses.look

    def _look(self) -> Look:
        waiting, peak = self._demand.look()
        return Look(
            now=time.monotonic(),
            due=self._due,
            waiting=waiting,
            peak=peak,
            processed=self._state.processed,
            served=self._demand.served,
            loop_cpu=time.thread_time(),  # A tick runs in the event loop's thread.
            process_cpu=time.process_time(),
        )

    def _consider(self, gauge: SlotsGauge, load: SlotsLoad) -> None:
        before = self._state.slots
        decision = scale_slots(self._bounds, before, load, self._pauses)
        if decision is None:
            return
        self._state.slots = decision.target
        self._state.claim_again.set()
        gauge.changed(decision)
        takes = load.service_time
        log.info(
            "slots.scaled",
            worker_id=self._state.id,
            **{"from": before, "to": decision.target},
            reason=decision.reason,
            bounds=str(self._bounds),
            waiting=load.waiting,
            most_running=load.peak,
            service_time=None if takes is None else round(takes, 4),
            throughput=round(load.throughput, 1),
            loop_lag=None if load.lag is None else round(load.lag, 3),
            cpu=round(load.cpu, 2),
        )


class Demand:
    """Whether work waits, and how many jobs ran at once. Updated once per claim, not per job."""

    def __init__(self, runs: Sized) -> None:
        self._runs = runs
        self.waiting = False
        """Whether there is work, as far as is known, for which no slot is free."""
        self.served = 0.0
        """Total seconds that jobs took; counted only if a scaler reads it."""
        self._more = False
        self._short = 0
        self._peak = 0

    def claimed(self, *, more: bool) -> None:
        """Record a claim whose jobs have just started; `more` means that the claim was full."""
        self._peak = max(self._peak, len(self._runs))
        self._more = self.waiting = more
        self._short += not more

    def rested(self, *, waiting: bool) -> None:
        """Record that no job can be claimed; `waiting` means that threads, not jobs,
        are lacking.
        """
        self._more = False
        self._short += 1
        self.waiting = waiting

    def look(self) -> tuple[bool, int]:
        """Return whether slots were short all the time since the last call, and the most in use."""
        peak, self._peak = max(self._peak, len(self._runs)), len(self._runs)
        short, self._short = self._short, 0
        return self._more and not short, peak
